"""Signs of life on a server, for hosts whose death ends no connection: they lost power or network.

A server may take hours to find that nobody is at the other end. So each process has a row with the
time at which it was last heard of, by the server's own clock: nobody else's counts. A process that
only slept, and was given up for it, tells its trial all the same when it wakes up.
"""

from __future__ import annotations

import threading
from typing import Any

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import SQLAlchemyError

BEAT_SECONDS = 20.0
LATE_SECONDS = 50.0
"""After which a process is given up that is not connected any more: two beats are missing."""
SILENCE_SECONDS = 120.0
"""After which a process is given up that still seems to be connected."""
# The server gives up a connection at which nobody answers for about as long, and with it what that
# process has locked: 60 s of silence, then four questions 15 s apart.
_KEEPALIVE = {"tcp_keepalives_idle": 60, "tcp_keepalives_interval": 15, "tcp_keepalives_count": 4}

_IS_THERE = "SELECT to_regclass('autotune_heartbeats') IS NOT NULL"
_CREATE = "CREATE TABLE autotune_heartbeats (lease bigint PRIMARY KEY, seen timestamptz NOT NULL)"
_BEAT = (
    "INSERT INTO autotune_heartbeats VALUES (:lease, clock_timestamp()) "
    "ON CONFLICT (lease) DO UPDATE SET seen = excluded.seen"
)
_SILENCE = (
    "SELECT extract(epoch FROM clock_timestamp() - seen) FROM autotune_heartbeats "
    "WHERE lease = :lease"
)
_FORGET = "DELETE FROM autotune_heartbeats WHERE lease = :lease"
_FORGET_OLD = "DELETE FROM autotune_heartbeats WHERE seen < clock_timestamp() - interval '7 days'"


class Heartbeat:
    """Says that this process lives, until it is stopped."""

    def __init__(self, engine: Engine, lease: int) -> None:
        """To be made by one process at a time, since the table may have to be."""
        self._engine = engine
        self._lease = lease
        self._stopped = threading.Event()
        with engine.connect() as connection:
            if not connection.execute(text(_IS_THERE)).scalar():
                connection.execute(text(_CREATE))
            connection.execute(text(_FORGET_OLD))
        self.beat()
        self._thread = threading.Thread(target=self._go_on, name="heartbeat", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """Be heard of now."""
        with self._engine.connect() as connection:
            connection.execute(text(_BEAT), {"lease": self._lease})

    def stop(self) -> None:
        """Say no more; nobody has to wait for the silence of who left."""
        self._stopped.set()
        self._thread.join(timeout=BEAT_SECONDS)
        try:
            with self._engine.connect() as connection:
                connection.execute(text(_FORGET), {"lease": self._lease})
        except SQLAlchemyError:
            pass  # a server that is gone has forgotten

    def _go_on(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            try:
                self.beat()
            except SQLAlchemyError:
                continue  # the next one finds the server again, or whoever needs it says so


def silence(connection: Connection, lease: int) -> float | None:
    """For how many seconds a process was not heard of; None where it left, or never said anything.

    Raises:
        SQLAlchemyError: the server cannot be reached.
    """
    seconds = connection.execute(text(_SILENCE), {"lease": lease}).scalar()
    return None if seconds is None else float(seconds)


def end_dead_connections(engine: Engine) -> None:
    """Let the server find out soon where the other end of this engine's connections is gone."""
    asked = ", ".join(
        f"set_config('{name}', '{value}', false)" for name, value in _KEEPALIVE.items()
    )

    @event.listens_for(engine, "connect")
    def ask(connection: Any, _: object) -> None:
        connection.execute(f"SELECT {asked}")
        connection.commit()
