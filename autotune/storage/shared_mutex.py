"""Mutual exclusion of processes that share a study, on a server or in a file.

Processes that share a study in PostgreSQL take turns by an advisory lock of the server. Each also
keeps an advisory lock with the key of its lease while its connection lives. A connection may be cut
while its process lives, and the death of a host ends none, so heartbeats count as well. Processes
that share a file do the same with locks and times of files beside it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from autotune.process.common.trial_folder import make_private
from autotune.storage.heartbeat import (
    LATE_SECONDS,
    SILENCE_SECONDS,
    Heartbeat,
    end_dead_connections,
    server_heartbeat,
    silence,
)
from autotune.storage.leases import Lease, lease_of, own_lease
from autotune.storage.shared_file import check_shared_file
from autotune.values.errors import StorageError

# Key of the turn of all studies of a database, because creating its tables needs a turn, too.
_TURN = 0x6175746F74756E65
# A connection that is silent for hours would be dropped by firewalls, its lock with it.
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 6}
# Age at which a heartbeat that a killed process left beside a shared file is deleted.
_OLD_SECONDS = 7 * 24 * 3600.0
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


class SharedMutex(ABC):
    """The mutex of a study that several processes write."""

    shared = True

    def __init__(self) -> None:
        self.lease = own_lease()
        self.threads = threading.RLock()
        self._depth = 0

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
                    self._end_turn()

    def lives(self, lease: Lease) -> bool:
        """Return True if the process of a lease had a recent heartbeat.

        A lock that is lost alone is no death; it only shortens the silence that is allowed.
        """
        if lease.key == self.lease.key:
            return True
        if lease.died_here():
            return False
        with self.threads:
            silent, has_lock = self._signs(lease.key)
        if silent is None:  # it has left, or has not had its first heartbeat
            return has_lock
        return silent <= (SILENCE_SECONDS if has_lock else LATE_SECONDS)

    @abstractmethod
    def close(self) -> None:
        """Stop the heartbeat and release all locks."""

    @abstractmethod
    def _take_turn(self) -> None:
        """Wait for the lock of the turns."""

    @abstractmethod
    def _end_turn(self) -> None:
        """Release the lock of the turns."""

    @abstractmethod
    def _signs(self, key: int) -> tuple[float | None, bool]:
        """Return the seconds since a lease's last heartbeat, and True if its lock is taken."""


class ServerMutex(SharedMutex):
    """The mutex of a study on a PostgreSQL server."""

    def __init__(self, storage: str) -> None:
        super().__init__()
        self._engine = create_engine(
            storage,
            isolation_level="AUTOCOMMIT",
            connect_args=_KEEPALIVE,
            pool_size=2,  # one for the locks, one for the heartbeat
            pool_pre_ping=True,
        )
        end_dead_connections(self._engine)
        self._connection = self._connected()
        with self.turn():
            self._heartbeat = server_heartbeat(self._engine, self.lease.key)

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

    def _end_turn(self) -> None:
        _call(self._connection, "pg_advisory_unlock", _TURN)

    def _signs(self, key: int) -> tuple[float | None, bool]:
        silent = silence(self._connection, key)
        is_connected = not _call(self._connection, "pg_try_advisory_lock", key)
        if not is_connected:
            _call(self._connection, "pg_advisory_unlock", key)
        return silent, is_connected

    def _connected(self) -> Connection:
        connection = self._engine.connect()
        _call(connection, "pg_advisory_lock", self.lease.key)
        return connection


class FileMutex(SharedMutex):
    """The mutex of the studies in a shared file, by files in the folder `FILE.workers`.

    Each process has a file there, named by the key of its lease. It is locked while the process
    lives, and its time is that of the last heartbeat, by the clock of the file system.
    """

    def __init__(self, file: Path) -> None:
        """Take part in the studies of a shared file.

        Raises:
            StorageError: it cannot be such a file, or its file system has no locks.
            OSError: its folder cannot be written.
        """
        super().__init__()
        check_shared_file(file)
        self._folder = file.with_name(f"{file.name}.workers")
        make_private(self._folder)
        self._turns = _open(self._folder / "turn")
        self._path = self._folder / str(self.lease.key)
        self._own = _open(self._path)
        self._lock(self._own)
        os.pwrite(self._own, json.dumps(self.lease.as_dict()).encode(), 0)
        self._heartbeat = Heartbeat(lambda: os.utime(self._own), self._path.unlink)
        with self.turn():
            self._forget_old()

    def close(self) -> None:
        """Stop the heartbeat and close all files, which releases the locks."""
        self._heartbeat.stop()
        os.close(self._own)
        os.close(self._turns)

    def others(self) -> list[Lease]:
        """Return the leases of other processes that take part."""
        leases = (_lease_in(file) for file in self._leases())
        others = (lease for lease in leases if lease and lease.key != self.lease.key)
        return [lease for lease in others if self.lives(lease)]

    def _take_turn(self) -> None:
        self._lock(self._turns)

    def _end_turn(self) -> None:
        fcntl.flock(self._turns, fcntl.LOCK_UN)

    def _signs(self, key: int) -> tuple[float | None, bool]:
        try:
            other = os.open(self._folder / str(key), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None, False
        try:
            silent = self._now() - os.fstat(other).st_mtime
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return silent, True
        finally:
            os.close(other)
        return silent, False

    def _now(self) -> float:
        """Return the time of the file system, which may be another host's."""
        os.utime(self._own)
        return os.fstat(self._own).st_mtime

    def _leases(self) -> list[Path]:
        return [file for file in self._folder.iterdir() if file.name.isdigit()]

    def _forget_old(self) -> None:
        for file in self._leases():
            with suppress(FileNotFoundError):
                if self._now() - file.stat().st_mtime > _OLD_SECONDS:
                    file.unlink()

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            raise StorageError(
                f"{self._folder}: this file system has no locks for several processes "
                f"({error.strerror}). Choose a file on another one, or a PostgreSQL server."
            ) from error


@contextmanager
def sole_user(file: Path) -> Iterator[None]:
    """Keep all processes away from the studies in a shared file while the block runs.

    Raises:
        StorageError: another process uses them.
        OSError: the folder cannot be written.
    """
    mutex = FileMutex(file)
    try:
        with mutex.turn():
            if others := mutex.others():
                raise StorageError(f"{file} is in use by {others[0]}. Wait for it or end it.")
            yield
    finally:
        mutex.close()


def _lease_in(file: Path) -> Lease | None:
    """Return the lease that a process wrote; None if it has left, or has only begun."""
    try:
        return lease_of(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _call(connection: Connection, function: str, key: int) -> bool:
    """Call one of the server's advisory lock functions."""
    return bool(connection.execute(text(f"SELECT {function}(:key)"), {"key": key}).scalar())
