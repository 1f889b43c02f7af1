"""What a study is told, written down before Optuna hears of it: `results.jsonl` in its folder.

One line of JSON for each finished trial and each fact about the study, synchronised to the disk. So
the database can always be made again, and a crash between the two loses nothing. A line that a
crash left half written is moved to `results.jsonl.torn`; everything before it is whole.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from autotune.errors import StorageError
from autotune.knobs.base import Value
from autotune.trial_folder import make_private, write_atomically

SCHEMA_VERSION = 1
_CHECKED = ConfigDict(extra="forbid")


@checked(frozen=True, config=_CHECKED)
class TrialRecord:
    """A finished trial as Optuna is told it."""

    number: int
    """In the study that asked for it; another one may number it otherwise."""
    params: dict[str, Any]
    choices: dict[str, list[Any]]
    """Parameter to the values that it could take."""
    value: float
    constraints: list[float]
    attributes: dict[str, Any]
    kind: Literal["trial"] = "trial"

    @property
    def config(self) -> dict[str, Value]:
        """The configuration, whole."""
        return dict(self.attributes["config"])


@checked(frozen=True, config=_CHECKED)
class NoteRecord:
    """A fact about the whole study."""

    name: str
    fact: Any
    kind: Literal["note"] = "note"


Record = TrialRecord | NoteRecord


@dataclass(frozen=True, slots=True)
class Line:
    """A record with the study that it belongs to."""

    study: str
    record: Record


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
        facts = TypeAdapter(type(record)).dump_python(record)
        line = {"schema_version": SCHEMA_VERSION, "study": study, "record": facts}
        text = json.dumps(line, allow_nan=False) + "\n"
        with self._locked() as descriptor:
            try:
                self._settle(descriptor)
                _append(descriptor, text.encode())
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            yield

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
            lines = _content(descriptor).splitlines()
            yield [self._parsed(number, line) for number, line in enumerate(lines, 1)]

    def mend(self) -> int:
        """Set aside every line that is not readable; how many there were.

        Raises:
            StorageError: a line is of a newer autotune.
        """
        with self._locked() as descriptor:
            self._settle(descriptor)
            lines = _content(descriptor).splitlines(keepends=True)
            torn = [line for number, line in enumerate(lines, 1) if self._is_torn(number, line)]
            if torn:
                whole = b"".join(line for line in lines if line not in torn)
                self._set_aside(b"".join(torn))
                write_atomically(self.path, whole.decode())
            return len(torn)

    def _is_torn(self, number: int, line: bytes) -> bool:
        try:
            self._parsed(number, line)
        except NotReadableError:
            return True
        return False

    @contextmanager
    def _locked(self) -> Iterator[int]:
        make_private(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
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
        content = _content(descriptor)
        whole, newline, tail = content.rpartition(b"\n")
        try:
            self._parsed(0, tail)
        except NotReadableError:
            self._set_aside(tail + b"\n")
            os.ftruncate(descriptor, len(whole) + len(newline))
            os.fsync(descriptor)
        else:
            _append(descriptor, b"\n")

    def _set_aside(self, torn: bytes) -> None:
        with self.path.with_name(f"{self.path.name}.torn").open("ab") as file:
            file.write(torn)
            file.flush()
            os.fsync(file.fileno())

    def _parsed(self, number: int, line: bytes) -> Line:
        try:
            fields = json.loads(line)
            version = fields["schema_version"]
        except (ValueError, KeyError, TypeError) as error:
            raise NotReadableError(self._not_readable(number)) from error
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise StorageError(
                f"{self.path}, line {number}: format {version} was written by a newer autotune; "
                f"this one reads format {SCHEMA_VERSION}. Upgrade autotune."
            )
        try:
            return Line(str(fields["study"]), _adapter().validate_python(fields["record"]))
        except (KeyError, ValidationError) as error:
            raise NotReadableError(self._not_readable(number)) from error

    def _not_readable(self, number: int) -> str:
        return (
            f"{self.path}, line {number} is not readable. "
            f"`autotune repair {self.path.parent}` sets it aside and keeps the others."
        )


class NotReadableError(StorageError):
    """A line of the journal is no record."""


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Annotated[Record, Discriminator("kind")])


def _content(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


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
