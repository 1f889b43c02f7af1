"""The lines of a journal: their schema, and the check that refuses all other content.

A line that passes here is told to the study without further checks.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, create_trial
from pydantic import ConfigDict, Discriminator, NonNegativeInt, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from autotune.knobs.base import Value
from autotune.storage.finished_trial import finished_trial
from autotune.storage.notes import check_fact
from autotune.values import strict_json
from autotune.values.errors import StorageError, StudyMismatchError

SCHEMA_VERSION = 1
MOST_BYTES = 4 * strict_json.MOST_BYTES
"""Bytes of the longest line; such lines have the measurements of several processes."""
_BEGINNING = re.compile(rb'(?=\{"schema_version")')
# Levels of nesting, since Optuna copies attributes by recursion. autotune writes ten.
_MOST_LEVELS = 40
# Optuna's samplers and the dashboard's release 0.21 both read this attribute; the dashboard ignores
# constraints from `Trial.set_constraint`.
CONSTRAINTS_ATTRIBUTE = "constraints"
_CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False)


@checked(frozen=True, config=_CHECKED)
class TrialRecord:
    """A finished trial as Optuna is told it."""

    number: NonNegativeInt
    """Number in the study that asked for it; a rebuilt study may give it another one."""
    params: dict[str, Value]
    choices: dict[str, list[Value]]
    """Values that each parameter could take."""
    value: float
    constraints: list[float]
    attributes: dict[str, Any]
    kind: Literal["trial"] = "trial"

    @property
    def config(self) -> dict[str, Value]:
        """The full configuration."""
        return dict(self.attributes["config"])

    def as_trial(self) -> FrozenTrial:
        """Convert it to a trial that can be added to a study of Optuna's.

        Raises:
            ValueError: a parameter has none of its choices.
        """
        return create_trial(
            params=self.params,
            distributions={n: CategoricalDistribution(v) for n, v in self.choices.items()},
            value=self.value,
            user_attrs=self.attributes,
            system_attrs={CONSTRAINTS_ATTRIBUTE: self.constraints},
        )


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
    number: int
    """Number of the line in its file, from 1."""


class NotReadableError(StorageError):
    """A line of the journal is no record, or does not fit its study."""

    def __init__(self, path: Path, number: int) -> None:
        folder = shlex.quote(str(path.parent))
        super().__init__(
            f"{path}, line {number} is not readable. "
            f"`autotune repair {folder}` sets it aside and keeps the others."
        )


def read_line(path: Path, number: int, content: bytes) -> Line:
    """Parse and check the line of that number; `path` is for messages.

    Raises:
        NotReadableError: it is not readable.
        StorageError: it was written by a newer autotune.
    """
    try:
        fields = _fields(content)
        version = fields["schema_version"]
        if not isinstance(version, int) or version <= SCHEMA_VERSION:
            return _line(number, fields)
    except (ValueError, KeyError, TypeError, StudyMismatchError) as error:
        raise NotReadableError(path, number) from error
    raise StorageError(
        f"{path}, line {number}: format {version} was written by a newer autotune; "
        f"this one reads format {SCHEMA_VERSION}. Upgrade autotune."
    )


def records_in(path: Path, number: int, content: bytes) -> dict[bytes, Line]:
    """Return the line if it is readable, else each readable record in it.

    A damaged line has several records if a line break is among what was damaged.

    Raises:
        StorageError: it was written by a newer autotune.
    """
    try:
        return {content: read_line(path, number, content)}
    except NotReadableError:
        parts = [part[: part.rfind(b"}") + 1] + b"\n" for part in _BEGINNING.split(content)]
    found = {}
    for part in parts:
        with suppress(NotReadableError):
            found[part] = read_line(path, number, part)
    return found


def odd_lines(lines: Sequence[Line]) -> list[Line]:
    """Return the trials with other choices of a parameter than most; Optuna would refuse them."""
    told = [
        (line, (line.study, name), tuple(choices))
        for line in lines
        if isinstance(line.record, TrialRecord)
        for name, choices in line.record.choices.items()
    ]
    counts = Counter((parameter, choices) for _, parameter, choices in told)
    usual = dict(choice for choice, _ in reversed(counts.most_common()))
    return [line for line, parameter, choices in told if choices != usual[parameter]]


def _line(number: int, fields: dict[str, Any]) -> Line:
    study, record = fields["study"], _adapter().validate_python(fields["record"])
    if not isinstance(study, str):
        raise TypeError("the study's name is no text")
    names = [study]
    if isinstance(record, NoteRecord):
        check_fact(record.name, record.fact)
        names += [record.name]
    if isinstance(record, TrialRecord):
        finished_trial(record.as_trial())
        names += [*record.params, *record.attributes]
    for name in names:
        name.encode()  # refuses lone surrogates, which no database stores
    return Line(study, record, number)


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Annotated[Record, Discriminator("kind")])


def _fields(content: bytes) -> dict[str, Any]:
    text = content.decode()
    strict_json.check(content, MOST_BYTES)
    fields: Any = json.loads(text)
    if not isinstance(fields, dict):
        raise TypeError("it is no line of a journal")
    if _is_deep(fields, _MOST_LEVELS):
        raise ValueError("it is nested too deeply")
    return fields


def _is_deep(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deep(one, levels - 1) for one in inner)
