"""Studies in a shared file: Optuna's journal storage, to which several processes append.

No server is needed, and every process that sees the file may take part. A process that is killed
while it appends leaves an incomplete line, after which Optuna could read nothing more. So that line
is moved to `FILE.torn` before the next one is appended. It counts as never written, since the
process that wrote it did not go on.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from autotune.values.errors import StorageError

_MODE = 0o600
GRACE_SECONDS = 30
"""Seconds after which Optuna's lock of a process that was killed while it appended is broken."""
# Keys of every record of Optuna's.
_KEYS = frozenset(("op_code", "worker_id"))
_LONGEST_LINE = 1 << 24


def check_shared_file(path: Path) -> None:
    """Check that a file is a journal of Optuna's, or may become one.

    Raises:
        StorageError: its folder does not exist, or it is something else.
        OSError: it cannot be read.
    """
    if not path.parent.is_dir():
        absolute = Path("/", path)
        is_meant = not path.is_absolute() and absolute.parent.is_dir()
        helps = f"an absolute path has four slashes, journal:///{absolute}" if is_meant else ""
        raise StorageError(
            f"the storage journal:///{path} cannot be used: there is no folder {path.parent}. "
            f"Make it, or name another{': ' * bool(helps)}{helps}."
        )
    if path.exists() and not (path.is_file() and _begins_as_journal(path)):
        raise StorageError(
            f"the storage journal:///{path} cannot be used: {path} is no journal of Optuna's, so "
            "it is left as it is. Name another file, which a search makes and fills from the "
            "study's results.jsonl."
        )


def opened(path: Path) -> JournalStorage:
    """Open Optuna's storage in a file, and create the file if needed.

    Raises:
        StorageError: see `check_shared_file`.
        StorageInternalError: a line is not readable.
        OSError: it cannot be written.
    """
    check_shared_file(path)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE))
    return opened_for_reading(path)


def opened_for_reading(path: Path) -> JournalStorage:
    """Open Optuna's storage in a file that exists.

    Raises:
        StorageError: see `check_shared_file`.
        StorageInternalError: a line is not readable.
        OSError: it cannot be read.
    """
    check_shared_file(path)
    try:
        return JournalStorage(_Backend(path))
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StorageInternalError(f"its lines do not fit together, {error!r}") from None


def copy_readable(source: Path, target: Path) -> None:
    """Copy the lines of a journal up to the first that is not readable.

    Raises:
        OSError: one of the files cannot be used.
    """
    with source.open("rb") as lines, open(target, "wb", opener=_private) as copy:
        while _is_record(line := lines.readline(_LONGEST_LINE)):
            copy.write(line)


class _Backend(JournalFileBackend):
    """Optuna's access to a journal, with errors that name the line.

    Raises:
        StorageInternalError: a line is not readable, or the file is another one now.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Open as long as this lives, so that no later file gets its inode.
        self._opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._opened)
        super().__init__(str(path), _Lock(self))

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the records from this number on."""
        self.check()
        number = log_number_from
        try:
            for record in super().read_logs(log_number_from):
                if not (isinstance(record, dict) and record.keys() >= _KEYS):
                    raise ValueError
                number += 1
                yield record
        except ValueError:
            raise StorageInternalError(f"its line {number + 1} is not readable") from None

    def check(self) -> None:
        """Check that the file is the one that was opened.

        Raises:
            FileNotFoundError: it was deleted.
            StorageInternalError: another one has its place.
        """
        if not os.path.samestat(self.path.stat(), os.fstat(self._opened)):
            raise StorageInternalError("the file was replaced while it was in use")

    def settle(self) -> None:
        """Move an incomplete last line away; the lock must be held."""
        with self.path.open("r+b") as file:
            if not file.seek(0, os.SEEK_END):
                return
            file.seek(-1, os.SEEK_END)
            if file.read(1) == b"\n":
                return
            file.seek(0)
            content = file.read()
            end = content.rfind(b"\n") + 1
            aside = self.path.with_name(f"{self.path.name}.torn")
            with open(aside, "ab", opener=_private) as torn:
                torn.write(content[end:] + b"\n")
            file.truncate(end)
            os.fsync(file.fileno())


class _Lock(JournalFileOpenLock):
    """Optuna's lock of a journal, which is whole and in its place whenever it is taken."""

    def __init__(self, backend: _Backend) -> None:
        super().__init__(str(backend.path), GRACE_SECONDS)
        self._backend = backend

    def acquire(self) -> bool:
        """Wait for the lock, and settle the file."""
        super().acquire()
        try:
            self._backend.check()
            self._backend.settle()
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        """Release the lock; another process may have done so where this one was stopped."""
        with suppress(RuntimeError):
            super().release()


_private = partial(os.open, mode=_MODE)


def _begins_as_journal(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(_LONGEST_LINE)
    return first == b"" or _is_record(first) or _is_begun(first)


def _is_record(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return line.endswith(b"\n") and isinstance(record, dict) and record.keys() >= _KEYS


def _is_begun(line: bytes) -> bool:
    """Return True for the beginning of a record that a crash cut off."""
    head = b'{"op_code":'
    return not line.endswith(b"\n") and (line.startswith(head) or head.startswith(line))
