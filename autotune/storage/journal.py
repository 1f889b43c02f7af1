"""The write-ahead journal of a study: `results.jsonl` in its folder, written before the database.

It has one line of JSON for each finished trial and each fact about the study, synchronised to the
disk. So the database can always be rebuilt, and a crash between the two loses nothing. An
incomplete line that a crash has left is moved to `results.jsonl.torn`; all lines before it are
complete.
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

from autotune.process.common.trial_folder import make_private, write_atomically
from autotune.storage.journal_lines import (
    MOST_BYTES,
    SCHEMA_VERSION,
    Line,
    NoteRecord,
    NotReadableError,
    Record,
    TrialRecord,
    odd_lines,
    read_line,
    records_in,
)

__all__ = ["Journal", "Line", "NoteRecord", "Record", "TrialRecord"]

_MODE = 0o600  # of the files, even if other users may read the folder


class Journal:
    """The journal of a study's folder; several processes of one host may write it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.jsonl"

    @contextmanager
    def writing(self, study: str, record: Record) -> Iterator[None]:
        """Append a record, and lock the journal while the block runs, which tells the database.

        Raises:
            OSError: it cannot be written; the journal is unchanged.
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
        """Return True if a line belongs to that study, so that the folder is the study's own.

        The journal is neither locked nor changed, so it works while a search is running.

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
        """Read all lines, and lock the journal while the block runs.

        Raises:
            StorageError: a line is not readable, or written by a newer autotune; nothing is
                changed.
        """
        if not self.path.exists():
            yield []
            return
        with self._locked() as descriptor:
            self._settle(descriptor)
            lines = [read_line(self.path, number, text) for number, text in _numbered(descriptor)]
            for odd in odd_lines(lines):
                raise NotReadableError(self.path, odd.number)
            yield lines

    def mend(self) -> int:
        """Move lines that are not readable to `results.jsonl.torn`; return their number.

        Readable records stay, also those that share a line with the damage.

        Raises:
            StorageError: a line was written by a newer autotune.
        """
        with self._locked() as descriptor:
            self._settle(descriptor)
            found: list[tuple[bytes, Line]] = []
            torn: set[int] = set()
            for number, line in _numbered(descriptor):
                records = records_in(self.path, number, line)
                found += records.items()
                if line not in records:
                    torn.add(number)
            odd = odd_lines([record for _, record in found])
            torn |= {record.number for record in odd}
            if torn:
                self._set_aside(line for number, line in _numbered(descriptor) if number in torn)
                whole = b"".join(text for text, record in found if record not in odd)
                write_atomically(self.path, whole.decode(), _MODE)
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
        """Complete an incomplete last line if only its line break is missing, else move it away."""
        size = os.fstat(descriptor).st_size
        if not size or os.pread(descriptor, 1, size - 1) == b"\n":
            return
        end = offset = 0
        for _, piece in _numbered(descriptor):
            offset += len(piece)
            end = offset if piece.endswith(b"\n") else end
        try:
            read_line(self.path, 0, os.pread(descriptor, MOST_BYTES + 1, end))
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
    """Return the text with which each line of a study begins."""
    return json.dumps({"schema_version": SCHEMA_VERSION, "study": study})[:-1]


def _numbered(descriptor: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers; a line that is too long comes in pieces."""
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
