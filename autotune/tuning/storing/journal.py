"""What a study is told, written down before Optuna hears of it: `results.jsonl` in its folder.

One line of JSON for each finished trial and each fact about the study, synchronised to the disk. So
the database can always be made again, and a crash between the two loses nothing. A line that a
crash left half written is moved to `results.jsonl.torn`; everything before it is whole.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

from pydantic import TypeAdapter

from autotune.trial_folder import make_private, write_atomically
from autotune.tuning.storing.lines import (
    MOST_BYTES,
    SCHEMA_VERSION,
    Line,
    LineReader,
    NoteRecord,
    NotReadableError,
    Record,
    TrialRecord,
)

__all__ = ["Journal", "Line", "NoteRecord", "Record", "TrialRecord"]

_MODE = 0o600  # of the files, also where somebody opened the folder to others


class Journal:
    """The journal of a study's folder; several processes of one host may write it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.jsonl"

    @contextmanager
    def writing(self, study: str, record: Record) -> Iterator[None]:
        """Write a record down, and keep others from telling it as well while the block runs.

        Raises:
            OSError: it cannot be written; the journal is as it was.
        """
        facts = json.dumps(TypeAdapter(type(record)).dump_python(record), allow_nan=False)
        text = f'{_head(study)}, "record": {facts}}}\n'
        with self._locked() as descriptor:
            try:
                self._settle(descriptor)
                _append(descriptor, text.encode())
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            yield

    def names(self, study: str) -> bool:
        """Whether a line is of that study: what lies in this folder is its own, then.

        Nothing is locked or settled, so that it can be asked beside a search.

        Raises:
            OSError: it cannot be read.
        """
        if not self.path.is_file():
            return False
        head = _head(study).encode()
        with self.path.open("rb") as file:
            return any(line.startswith(head) for line in file)

    @contextmanager
    def reading(self) -> Iterator[list[Line]]:
        """Every record, while nobody adds one.

        Raises:
            StorageError: a line is not readable, or of a newer autotune; nothing is changed.
        """
        if not self.path.exists():
            yield []
            return
        with self._locked() as descriptor:
            self._settle(descriptor)
            reader = LineReader(self.path)
            yield [reader.read(number, line) for number, line in _numbered(descriptor)]

    def mend(self) -> int:
        """Set aside every line that is not readable; how many there were.

        Raises:
            StorageError: a line is of a newer autotune.
        """
        with self._locked() as descriptor:
            self._settle(descriptor)
            is_torn = LineReader(self.path).is_torn
            torn = {number for number, line in _numbered(descriptor) if is_torn(number, line)}
            if torn:
                self._set_aside(line for number, line in _numbered(descriptor) if number in torn)
                whole = (line for number, line in _numbered(descriptor) if number not in torn)
                write_atomically(self.path, b"".join(whole).decode(), _MODE)
            return len(torn)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        make_private(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _settle(self, descriptor: int) -> None:
        """Complete or set aside a last line that was not written to its end."""
        size = os.fstat(descriptor).st_size
        if not size or os.pread(descriptor, 1, size - 1) == b"\n":
            return
        end = offset = 0
        for _, piece in _numbered(descriptor):
            offset += len(piece)
            end = offset if piece.endswith(b"\n") else end
        try:
            LineReader(self.path).read(0, os.pread(descriptor, MOST_BYTES + 1, end))
        except NotReadableError:
            self._set_aside(chain(_pieces(descriptor, end), [b"\n"]))
            os.ftruncate(descriptor, end)
            os.fsync(descriptor)
        else:
            _append(descriptor, b"\n")

    def _set_aside(self, torn: Iterable[bytes]) -> None:
        aside = self.path.with_name(f"{self.path.name}.torn")
        with open(aside, "ab", opener=partial(os.open, mode=_MODE)) as file:
            file.writelines(torn)
            file.flush()
            os.fsync(file.fileno())


def _head(study: str) -> str:
    """How each line of a study begins."""
    return json.dumps({"schema_version": SCHEMA_VERSION, "study": study})[:-1]


def _numbered(descriptor: int) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers; of one that is too long several pieces, none of them readable."""
    number = 1
    for piece in _pieces(descriptor):
        yield number, piece
        number += piece.endswith(b"\n")


def _pieces(descriptor: int, start: int = 0) -> Iterator[bytes]:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(start)
        yield from iter(lambda: file.readline(MOST_BYTES + 1), b"")


def _append(descriptor: int, line: bytes) -> None:
    """Write a whole line and synchronise it, or leave the file as it was."""
    size = os.fstat(descriptor).st_size
    try:
        written = 0
        while written < len(line):
            written += os.write(descriptor, line[written:])
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise
