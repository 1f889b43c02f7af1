"""Mutual exclusion of a study's writers, and detection of writers that have died.

A study in memory or in an SQLite file has one writing process, by a lock on its folder that the
kernel releases if its owner dies. The threads of that process take turns. `shared_mutex` serves
studies that several processes share.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from autotune.process.common.trial_folder import make_private
from autotune.storage.database import is_server, shared_file_of, with_driver
from autotune.storage.leases import Lease, own_lease
from autotune.storage.shared_mutex import FileMutex, ServerMutex, SharedMutex
from autotune.values.errors import StorageError

LOCK_FILE = ".autotune-lock"
"""Name of the lock file; distinct, since the folder may contain other files than a study's."""
_LONGEST_PID = 20


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


def mutex_for(storage: str | None) -> LocalMutex | SharedMutex:
    """Return the mutex for a storage URL; None stands for a study in memory.

    Raises:
        ImportError, ValueError: the driver of the database is not installed.
        SQLAlchemyError: the server cannot be reached.
        StorageError, OSError: a shared file cannot be used.
    """
    if (file := shared_file_of(storage)) is not None:
        return FileMutex(file)
    if storage is not None and is_server(storage):
        return ServerMutex(with_driver(storage))
    return LocalMutex()
