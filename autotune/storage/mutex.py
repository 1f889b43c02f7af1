"""Mutual exclusion of a study's writers, and detection of writers that have died.

A study in memory or in an SQLite file has one writing process, by a lock on its folder that the
kernel releases if its owner dies. The threads of that process take turns. Processes that share a
study in PostgreSQL take turns by an advisory lock of the server. Each also keeps an advisory lock
with the key of its lease while its connection lives. A connection may be cut while its process
lives, and the death of a host ends none, so heartbeats count as well.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from autotune.storage.database import is_server, with_driver
from autotune.storage.heartbeat import (
    LATE_SECONDS,
    SILENCE_SECONDS,
    Heartbeat,
    end_dead_connections,
    silence,
)
from autotune.storage.leases import Lease, own_lease
from autotune.system.trial_folder import make_private
from autotune.values.errors import StorageError

LOCK_FILE = ".autotune-lock"
"""Name of the lock file; distinct, since the folder may contain other files than a study's."""
_LONGEST_PID = 20
# Key of the turn of all studies of a database, because creating its tables needs a turn, too.
_TURN = 0x6175746F74756E65
# A connection that is silent for hours would be dropped by firewalls, its lock with it.
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 6}


@contextmanager
def study_lock(folder: Path) -> Iterator[None]:
    """Lock the folder while the block runs.

    Raises:
        StorageError: another process has the lock, or the folder cannot be written.
    """
    path = folder / LOCK_FILE
    try:
        make_private(folder)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be used for the study: {error.strerror}. "
            "Work in a folder that you may write to."
        ) from error
    try:
        _take_lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _content(descriptor).decode(errors="replace") or "unknown"
        raise StorageError(
            f"the study in {folder} is in use by process {holder}. "
            "Wait for it; a search of its own can have another name, with --study NAME."
        ) from None
    if (content := _content(descriptor)) and not content.isdigit():
        raise StorageError(
            f"{folder / LOCK_FILE} is no lock of autotune's, so it is left as it is. "
            "Give it another name, or keep the study in another folder."
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, _LONGEST_PID, 0)


class Mutex(Protocol):
    """A protocol of turns of writers, with a lease of this process."""

    lease: Lease

    @property
    def shared(self) -> bool:
        """True if other processes may take turns, too."""

    @property
    def threads(self) -> AbstractContextManager[Any]:
        """Lock among the threads of this process; a turn includes it."""

    def turn(self) -> AbstractContextManager[None]:
        """Exclude other writers from starting, losing and counting trials in a block."""

    def lives(self, lease: Lease) -> bool:
        """Return True if the process of a lease still runs."""

    def close(self) -> None:
        """Release all locks and connections."""


class LocalMutex:
    """The mutex of a study with one writing process, which `study_lock` ensures."""

    shared = False

    def __init__(self) -> None:
        self.lease = own_lease()
        self.threads = threading.RLock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Exclude other threads from starting, losing and counting trials in a block."""
        with self.threads:
            yield

    def lives(self, lease: Lease) -> bool:
        """Return True for this study's own lease and for live processes of this machine."""
        return lease.key == self.lease.key or lease.lives_here()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class ServerMutex:
    """The mutex of a study on a PostgreSQL server."""

    shared = True

    def __init__(self, storage: str) -> None:
        self.lease = own_lease()
        self._engine = create_engine(
            storage,
            isolation_level="AUTOCOMMIT",
            connect_args=_KEEPALIVE,
            pool_size=2,  # one for the locks, one for the heartbeat
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
        """Exclude other threads and processes from starting, losing and counting trials."""
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
        """Return True if the process of a lease had a recent heartbeat.

        A cut connection alone is no death; it only shortens the silence that is allowed.
        """
        if lease.key == self.lease.key:
            return True
        if lease.died_here():
            return False
        with self.threads:
            silent = silence(self._connection, lease.key)
            is_connected = not _call(self._connection, "pg_try_advisory_lock", lease.key)
            if not is_connected:
                _call(self._connection, "pg_advisory_unlock", lease.key)
        if silent is None:  # it has left, or has not had its first heartbeat
            return is_connected
        return silent <= (SILENCE_SECONDS if is_connected else LATE_SECONDS)

    def close(self) -> None:
        """Stop the heartbeat and close all connections, which releases the locks."""
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
    """Return the mutex for a storage URL; None stands for a study in memory.

    Raises:
        ImportError, ValueError: the driver of the database is not installed.
        SQLAlchemyError: the server cannot be reached.
    """
    if storage is not None and is_server(storage):
        return ServerMutex(with_driver(storage))
    return LocalMutex()


def _call(connection: Connection, function: str, key: int) -> bool:
    """Call one of the server's advisory lock functions."""
    return bool(connection.execute(text(f"SELECT {function}(:key)"), {"key": key}).scalar())
