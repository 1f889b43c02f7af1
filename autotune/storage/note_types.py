"""Types of the notes of a study, and their form on disk; `autotune.storage.notes` has their keys.

A search relies on these facts, so facts that another program wrote, or that a disk has damaged, are
refused when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveInt,
)

from autotune.configuration.best_config import BestConfig
from autotune.storage.identity import Identity
from autotune.values.measurement import Measurement

Seconds = Annotated[FiniteFloat, Field(ge=0)]
Rate = Annotated[FiniteFloat, Field(ge=0)]


ACCURACY, DIAGNOSIS, VALIDATION = "accuracy", "diagnosis", "proving"
"""Phases of which a study notes the seconds: the baseline's first seed, the stages, and incumbents'
further seeds."""
START, WHOLE = "script_start", "search"
"""Also noted so: the starts of a script's processes, and the runs of the search that came to their
end."""


@dataclass(frozen=True)
class DriftCheck:
    """A drift check: the baseline's samples/s after a number of trials."""

    trials: NonNegativeInt
    samples_per_second: Rate


@dataclass(frozen=True)
class Revocation:
    """A revocation: the margin and the reason why some training is not accurate enough."""

    margin: Annotated[FiniteFloat, Field(gt=0)]
    reason: Annotated[str, Field(min_length=1)]
    in_doubt: bool = False
    """True if the seeds did not show that it is worse, but could not prove that it is not."""


@dataclass(frozen=True)
class CandidateLog:
    """The outcome of a candidate of the confirmation."""

    ratios: tuple[float, ...] | None = None
    """Worth over the baseline's in each round; None without rounds."""
    choosing: tuple[float, ...] | None = None
    """The same in rounds that chose between it and others, which are no evidence; None if none."""
    ci95: tuple[float, float] | None = None
    """The 95 % interval of the ratio."""
    disturbed: NonNegativeInt | None = None
    """Disturbed rounds that count; None if there are none, or if not known."""
    set_aside_for: NonNegativeInt | None = None
    """Number of the trial for which it was set aside."""
    refused: str | None = None
    """Reason why it was refused."""


@dataclass(frozen=True)
class Confirmation:
    """A confirmation: its seconds, and the outcome of each candidate by its trial's number."""

    seconds: Seconds
    candidates: Mapping[NonNegativeInt, CandidateLog]
    baseline_rates: tuple[Rate, ...] = ()
    """The baseline's samples/s in each round that counts."""


def _best(fact: Any) -> BestConfig:
    return BestConfig.model_validate_json(json.dumps(fact))


@dataclass(frozen=True)
class Answer:
    """A result: the content of best.yaml after a number of trials."""

    trials: NonNegativeInt
    best: Annotated[BestConfig, BeforeValidator(_best)]


@dataclass(frozen=True)
class Workers:
    """The options with which other workers judge trials."""

    options: Mapping[str, Any]
    trials: PositiveInt


def as_json(value: Any) -> Any:
    """Return a fact as JSON values; in a `CandidateLog`, None is left out."""
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    match value:
        case BaseModel():
            return value.model_dump(mode="json")
        case Identity():
            return value.facts
    parts = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, CandidateLog):
        return {name: part for name, part in parts.items() if part is not None}
    return parts


def _observed(run: Measurement) -> Measurement:
    if run.nonsense:
        raise ValueError(run.nonsense)
    return run


StoredRun = Annotated[Measurement, AfterValidator(_observed)]
"""Type of a measurement on disk, which is refused if it is impossible."""
