"""Types of the facts about a study, and their form on disk.

A search relies on these facts, so facts that another program wrote, or that a disk has damaged, are
refused when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
)

from autotune.configuration.best_config import BestConfig
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.values.measurement import Measurement

Seconds = Annotated[FiniteFloat, Field(ge=0)]
Rate = Annotated[FiniteFloat, Field(ge=0)]


@dataclass(frozen=True)
class Identity:
    """The facts for which a study was made, which must not change between its runs.

    Facts that are only compared have no attribute.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def baseline(self) -> TrainingConfig:
        """The user's settings."""
        return TrainingConfig.of(self.facts["baseline"])

    @property
    def space(self) -> SearchSpace | None:
        """The search space before the diagnosis; None if it is not known."""
        domains = self.facts.get("space")
        if domains is None:
            return None
        return SearchSpace({name: tuple(values) for name, values in domains.items()})

    @property
    def memory_limit_bytes(self) -> int | None:
        """Memory limit of every trial; None if it is not known."""
        return self.facts.get("memory_limit_bytes")

    @property
    def objective(self) -> str:
        """Name of the objective, with the samples of the run if it is the time of a run."""
        return str(self.facts.get("objective", "throughput"))

    @property
    def machine(self) -> str | None:
        """Fingerprint of the machine; None if it is not known."""
        return self.facts.get("machine")

    @property
    def model_sha256(self) -> str | None:
        """SHA-256 of the workload's file; None if it is not known."""
        return self.facts.get("model_sha256")

    @property
    def is_of_script(self) -> bool:
        """True if the workload is a training script."""
        return "script" in self.facts


@dataclass(frozen=True)
class _IdentityFacts:
    """The facts of an identity that have an attribute."""

    baseline: dict[str, Value] = field(default_factory=dict)
    space: dict[str, list[Value]] = field(default_factory=dict)
    memory_limit_bytes: PositiveInt = 1


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


@dataclass(frozen=True)
class CandidateLog:
    """The outcome of a candidate of the confirmation."""

    ratios: tuple[float, ...] | None = None
    """Worth over the baseline's in each round; None without rounds."""
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


def _checked(facts: dict[str, Any]) -> Identity:
    _identity_adapter().validate_python(facts)
    return Identity(facts)


@cache
def _identity_adapter() -> TypeAdapter[_IdentityFacts]:
    return TypeAdapter(_IdentityFacts)


def _observed(run: Measurement) -> Measurement:
    if run.nonsense:
        raise ValueError(run.nonsense)
    return run


StoredIdentity = Annotated[dict[str, Any], AfterValidator(_checked)]
"""Type of an `Identity` on disk."""
StoredRun = Annotated[Measurement, AfterValidator(_observed)]
"""Type of a measurement on disk, which is refused if it is impossible."""
