"""Heartbeats of processes that share a study, for hosts that lose power or network.

A server may take hours to notice that the other end of a connection is gone. So each process has a
row with the time of its last heartbeat by the server's clock, or a file with that time beside a
shared file. A process that only slept, and was taken for dead, tells its trial all the same when it
wakes up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import SQLAlchemyError

BEAT_SECONDS = 20.0
LATE_SECONDS = 50.0
"""Silence after which a disconnected process counts as dead: two beats are missing."""
SILENCE_SECONDS = 120.0
"""Silence after which a process counts as dead that still seems to be connected."""
# The server drops a dead connection, and its locks, after about as long: 60 s of silence, then four
# probes 15 s apart.
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
    """A thread that renews this process's heartbeat until it is stopped."""

    def __init__(self, beat: Callable[[], None], forget: Callable[[], None]) -> None:
        """Call `beat` now, and start the thread that goes on with it.

        Args:
            beat: renews the heartbeat.
            forget: deletes it.
        """
        self._beat = beat
        self._forget = forget
        self._stopped = threading.Event()
        beat()
        self._thread = threading.Thread(target=self._go_on, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and delete the heartbeat, so that no process waits for a silence."""
        self._stopped.set()
        self._thread.join(timeout=BEAT_SECONDS)
        with suppress(SQLAlchemyError, OSError):  # it is out of reach; old ones are deleted later
            self._forget()

    def _go_on(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            with suppress(SQLAlchemyError, OSError):  # other calls report the error
                self._beat()


def server_heartbeat(engine: Engine, lease: int) -> Heartbeat:
    """Start a heartbeat on a server; creates its table, so one process at a time may do this."""

    def execute(statement: str) -> None:
        with engine.connect() as connection:
            connection.execute(text(statement), {"lease": lease})

    with engine.connect() as connection:
        if not connection.execute(text(_IS_THERE)).scalar():
            connection.execute(text(_CREATE))
        connection.execute(text(_FORGET_OLD))
    return Heartbeat(lambda: execute(_BEAT), lambda: execute(_FORGET))


def silence(connection: Connection, lease: int) -> float | None:
    """Return the seconds since a process's last heartbeat; None if it left or never had one.

    Raises:
        SQLAlchemyError: the server cannot be reached.
    """
    seconds = connection.execute(text(_SILENCE), {"lease": lease}).scalar()
    return None if seconds is None else float(seconds)


def end_dead_connections(engine: Engine) -> None:
    """Let the server detect soon that the other end of one of this engine's connections is gone."""
    asked = ", ".join(
        f"set_config('{name}', '{value}', false)" for name, value in _KEEPALIVE.items()
    )

    @event.listens_for(engine, "connect")
    def ask(connection: Any, _: object) -> None:
        connection.execute(f"SELECT {asked}")
        connection.commit()
