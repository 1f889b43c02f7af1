"""Who may ask a study for a trial now, and which of those who asked before are still there.

A study in memory or in an SQLite file has one writing process; its threads take turns. Several
processes share a study in PostgreSQL: they take turns by an advisory lock of the server, and each
holds one of its own, by the key of its lease, for as long as its connection lives. A connection may
be cut while its process lives, and the death of a whole host ends none: so what counts is also when
a process was last heard of. No server of ours is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from autotune.tuning.storing.heartbeat import (
    LATE_SECONDS,
    SILENCE_SECONDS,
    Heartbeat,
    end_dead_connections,
    silence,
)
from autotune.tuning.storing.leases import Lease, own_lease
from autotune.tuning.storing.storage import is_server, with_driver

# One turn for all studies of a database, because creating its tables needs one, too.
_TURN = 0x6175746F74756E65
# A connection that is silent for hours would be dropped by firewalls, its lock with it.
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 6}


class Mutex(Protocol):
    """Turns, and a lease of one's own."""

    lease: Lease

    @property
    def shared(self) -> bool:
        """Whether other processes may take turns, too."""

    @property
    def threads(self) -> AbstractContextManager[Any]:
        """Held by one thread of this process at a time; a turn includes it."""

    def turn(self) -> AbstractContextManager[None]:
        """A context in which nobody else asks, gives up or counts trials."""

    def lives(self, lease: Lease) -> bool:
        """Whether who holds a lease still runs."""

    def close(self) -> None:
        """Let go of everything."""


class LocalMutex:
    """Of a study with one writing process, which a file's lock sees to."""

    shared = False

    def __init__(self) -> None:
        self.lease = own_lease()
        self.threads = threading.RLock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A context in which no other thread asks, gives up or counts trials."""
        with self.threads:
            yield

    def lives(self, lease: Lease) -> bool:
        """Whether who holds a lease still runs: this study, or another process of this machine."""
        return lease.key == self.lease.key or lease.lives_here()

    def close(self) -> None:
        """There is nothing to let go of."""


class ServerMutex:
    """Of a study on a PostgreSQL server."""

    shared = True

    def __init__(self, storage: str) -> None:
        self.lease = own_lease()
        self._engine = create_engine(
            storage,
            isolation_level="AUTOCOMMIT",
            connect_args=_KEEPALIVE,
            pool_size=2,  # one that holds the locks, one that says that this process lives
            pool_pre_ping=True,
        )
        end_dead_connections(self._engine)
        self.threads = threading.RLock()
        self._depth = 0
        self._connection = self._connected()
        with self.turn():
            self._heartbeat = Heartbeat(self._engine, self.lease.key)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A context in which no other thread or process asks, gives up or counts trials."""
        with self.threads:
            if not self._depth:
                self._take_turn()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    _call(self._connection, "pg_advisory_unlock", _TURN)

    def lives(self, lease: Lease) -> bool:
        """Whether who holds a lease was heard of lately: a cut connection alone is no death."""
        if lease.key == self.lease.key:
            return True
        if lease.died_here():
            return False
        with self.threads:
            silent = silence(self._connection, lease.key)
            is_connected = not _call(self._connection, "pg_try_advisory_lock", lease.key)
            if not is_connected:
                _call(self._connection, "pg_advisory_unlock", lease.key)
        if silent is None:  # it left, or is about to be heard of for the first time
            return is_connected
        return silent <= (SILENCE_SECONDS if is_connected else LATE_SECONDS)

    def close(self) -> None:
        """Let go of everything."""
        self._heartbeat.stop()
        self._connection.close()
        self._engine.dispose()

    def _take_turn(self) -> None:
        try:
            _call(self._connection, "pg_advisory_lock", _TURN)
        except SQLAlchemyError:  # the server was restarted, or the way to it was cut
            self._connection.invalidate()
            self._connection.close()
            self._connection = self._connected()
            _call(self._connection, "pg_advisory_lock", _TURN)

    def _connected(self) -> Connection:
        connection = self._engine.connect()
        _call(connection, "pg_advisory_lock", self.lease.key)
        return connection


def mutex_for(storage: str | None) -> LocalMutex | ServerMutex:
    """What keeps the writers of a study apart.

    Raises:
        SQLAlchemyError: the server cannot be reached.
    """
    if storage is not None and is_server(storage):
        return ServerMutex(with_driver(storage))
    return LocalMutex()


def _call(connection: Connection, function: str, key: int) -> bool:
    """One of the server's functions of locks."""
    return bool(connection.execute(text(f"SELECT {function}(:key)"), {"key": key}).scalar())
