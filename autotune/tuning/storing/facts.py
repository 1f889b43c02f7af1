"""What the facts about a study look like that it is told again from its journal.

A search reckons with them as they are, so what somebody else wrote, or a damaged disk made of them,
is refused where it is read. Names that nobody here knows hold whatever they hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
)

from autotune.best import BestConfig
from autotune.knobs.base import Value
from autotune.measurement import Measurement
from autotune.outcome import Diagnosed

Seconds = Annotated[FiniteFloat, Field(ge=0)]
Rate = Annotated[FiniteFloat, Field(ge=0)]


def _observed(run: Measurement) -> Measurement:
    if run.nonsense:
        raise ValueError(run.nonsense)
    return run


@dataclass(frozen=True)
class Identity:
    """What a study is of; what else is in it is compared and never reckoned with."""

    baseline: dict[str, Value] = field(default_factory=dict)
    space: dict[str, list[Value]] = field(default_factory=dict)
    memory_limit_bytes: PositiveInt = 1


@dataclass(frozen=True)
class Anchor:
    """The baseline's rate after so many trials."""

    trials: NonNegativeInt
    samples_per_second: Rate


@dataclass(frozen=True)
class Ruling:
    """Why a kind of training is not accurate enough, and by how much."""

    margin: Annotated[FiniteFloat, Field(gt=0)]
    reason: Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class Confirmation:
    """Seconds, and what became of each candidate, by its trial's number."""

    seconds: Seconds
    candidates: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Answer:
    """The best.yaml after so many trials."""

    trials: NonNegativeInt
    best: dict[str, Any]


@dataclass(frozen=True)
class Workers:
    """What trials are judged by elsewhere."""

    options: dict[str, Any]
    trials: PositiveInt


Runs = Annotated[list[Annotated[Measurement, AfterValidator(_observed)]], Field(min_length=1)]
_TYPES: dict[str, Any] = {
    "constraint_names": list[str],
    "identity": Identity,
    "start_seconds": Seconds,
    "baseline_run_seconds": Seconds,
    "baseline_runs": Runs,
    "phase_seconds": dict[str, Seconds],
    "probe_samples": NonNegativeInt,
    "probe_seconds": Seconds,
    "qualities": dict[str, list[FiniteFloat]],
    "margins": dict[str, FiniteFloat],
    "gates": dict[str, str],
    "anchors": list[Anchor],
    "rulings": dict[str, Ruling],
    "diagnosis": Diagnosed,
    "timed_again": dict[str, list[PositiveFloat]],
    "confirmation": Confirmation,
    "answer": Answer,
    "workers": Workers,
}


def check_fact(name: str, fact: Any) -> None:
    """Refuse a fact that is not what its name says.

    Raises:
        ValueError: it is something else.
    """
    kind = name.partition("@")[0]  # a worker's own
    if kind not in _TYPES:
        return
    checked = _validator(kind)(fact)
    if kind == "answer":
        BestConfig.model_validate_json(json.dumps(checked.best))


@cache
def _validator(kind: str) -> Callable[[Any], Any]:
    return TypeAdapter[Any](_TYPES[kind]).validate_python
