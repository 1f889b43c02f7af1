"""One writing process per study folder, by a lock that the kernel releases if its owner dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.system.trial_folder import make_private
from autotune.values.errors import StorageError

NAME = ".autotune-lock"
"""Name of the lock file; distinct, since the folder may contain other files than a study's."""
_LONGEST_PID = 20


@contextmanager
def study_lock(folder: Path) -> Iterator[None]:
    """Lock the folder while the block runs.

    Raises:
        StorageError: another process has the lock, or the folder cannot be written.
    """
    path = folder / NAME
    try:
        make_private(folder)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be used for the study: {error.strerror}. "
            "Work in a folder that you may write to."
        ) from error
    try:
        _take(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
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
            f"{folder / NAME} is no lock of autotune's, so it is left as it is. "
            "Give it another name, or keep the study in another folder."
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, _LONGEST_PID, 0)
