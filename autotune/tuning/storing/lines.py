"""The lines of a journal: what each holds, and what is no line of autotune's whoever wrote it.

A line is refused here or never: what came through is told to the study without another look.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, create_trial
from pydantic import ConfigDict, Discriminator, NonNegativeInt, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from autotune import strict_json
from autotune.errors import StorageError, StudyMismatchError
from autotune.knobs.base import Value
from autotune.tuning.storing.facts import check_fact
from autotune.tuning.storing.finished import finished_trial

SCHEMA_VERSION = 1
MOST_BYTES = 4 * strict_json.MOST_BYTES
"""Of a line; the longest ones hold the measurements of several processes."""
# What autotune writes has ten. Optuna copies attributes by recursion.
_MOST_LEVELS = 40
# Optuna's samplers and the dashboard's release 0.21 both read this attribute; the dashboard does
# not read what `Trial.set_constraint` writes.
CONSTRAINTS_ATTRIBUTE = "constraints"
_CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False)


@checked(frozen=True, config=_CHECKED)
class TrialRecord:
    """A finished trial as Optuna is told it."""

    number: NonNegativeInt
    """In the study that asked for it; another one may number it otherwise."""
    params: dict[str, Value]
    choices: dict[str, list[Value]]
    """Parameter to the values that it could take."""
    value: float
    constraints: list[float]
    attributes: dict[str, Any]
    kind: Literal["trial"] = "trial"

    @property
    def config(self) -> dict[str, Value]:
        """The configuration, whole."""
        return dict(self.attributes["config"])

    def as_trial(self) -> FrozenTrial:
        """As Optuna adds it to a study.

        Raises:
            ValueError: a parameter is none of its choices.
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
    """Of the line in its file."""


class NotReadableError(StorageError):
    """A line of the journal is no record, or fits no study."""

    def __init__(self, path: Path, number: int) -> None:
        folder = shlex.quote(str(path.parent))
        super().__init__(
            f"{path}, line {number} is not readable. "
            f"`autotune repair {folder}` sets it aside and keeps the others."
        )


class LineReader:
    """Reads the lines of one journal in their order: the later ones have to fit the earlier."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._choices: dict[tuple[str, str], list[Value]] = {}

    def read(self, number: int, content: bytes) -> Line:
        """The line of that number.

        Raises:
            StorageError: it is not readable (NotReadableError), or of a newer autotune.
        """
        try:
            fields = _fields(content)
            version = fields["schema_version"]
            if not isinstance(version, int) or version <= SCHEMA_VERSION:
                return self._line(number, fields)
        except (ValueError, KeyError, TypeError, StudyMismatchError) as error:
            raise NotReadableError(self._path, number) from error
        raise StorageError(
            f"{self._path}, line {number}: format {version} was written by a newer autotune; "
            f"this one reads format {SCHEMA_VERSION}. Upgrade autotune."
        )

    def is_torn(self, number: int, content: bytes) -> bool:
        """Whether the line is not readable.

        Raises:
            StorageError: it is of a newer autotune.
        """
        try:
            self.read(number, content)
        except NotReadableError:
            return True
        return False

    def _line(self, number: int, fields: dict[str, Any]) -> Line:
        study, record = fields["study"], _adapter().validate_python(fields["record"])
        if not isinstance(study, str):
            raise TypeError("the study's name is no text")
        names = [study]
        if isinstance(record, NoteRecord):
            check_fact(record.name, record.fact)
            names += [record.name]
        if isinstance(record, TrialRecord):
            finished_trial(record.as_trial())
            self._check_choices(study, record)
            names += [*record.params, *record.attributes]
        for name in names:
            name.encode()  # half a character is no name for a database
        return Line(study, record, number)

    def _check_choices(self, study: str, record: TrialRecord) -> None:
        """A parameter has the same choices in all trials of a study, or Optuna takes none."""
        for name, choices in record.choices.items():
            if self._choices.setdefault((study, name), choices) != choices:
                raise ValueError(f"other choices of {name} than before")


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
