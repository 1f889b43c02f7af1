"""Events of a search, as values: the search yields them, reporting shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from autotune.configuration.best_config import BestConfig
from autotune.configuration.script import ScriptOptions
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.searching.run.diagnosis import Diagnosis
from autotune.study.facts import FinishedTrial
from autotune.values.statistics import Interval

Phase = Literal["baseline", "diagnosis", "search", "confirmation"]


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all that a search yields."""


@dataclass(frozen=True, slots=True)
class Planned(Event):
    """The search is about to start, or to continue."""

    context: SearchContext
    finished_before: int


@dataclass(frozen=True, slots=True)
class StagesTimed(Event):
    """The stages of training were timed, and the search space was narrowed."""

    diagnosis: Diagnosis
    space: SearchSpace
    """The space without values that cannot matter."""


@dataclass(frozen=True, slots=True)
class PhaseStarted(Event):
    """A part of the search begins."""

    phase: Phase
    detail: str
    eta_seconds: float | None = None
    """Estimated seconds until best.yaml is written, as in the events below."""


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """A step of a phase is about to run: a process of the baseline, or its accuracy."""

    detail: str


@dataclass(frozen=True, slots=True)
class Noted(Event):
    """A remark on what was measured, or on what is not searched, perhaps for now."""

    text: str


@dataclass(frozen=True, slots=True)
class TrialStarted(Event):
    """A configuration is about to be measured; if the trial is lost, no `TrialEnded` follows."""

    number: int
    config: TrainingConfig


@dataclass(frozen=True, slots=True)
class TrialEnded(Event):
    """A trial is finished and stored in the study."""

    trial: FinishedTrial
    baseline: FinishedTrial
    best: FinishedTrial
    elapsed_seconds: float
    eta_seconds: float | None


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """A warning to the user, with advice."""

    warning: str


@dataclass(frozen=True, slots=True)
class TrialsEnded(Event):
    """The trials are over."""

    reason: str


@dataclass(frozen=True, slots=True)
class RoundEnded(Event):
    """The baseline and a candidate were timed once more, each in a fresh process."""

    config: TrainingConfig
    ratios: tuple[float, ...]
    """The candidate's worth over the baseline's, one ratio per round so far."""
    interval: Interval
    eta_seconds: float | None = None
    """Estimated seconds until best.yaml is written, if the next test decides."""
    disturbed: int | None = None
    """Number of rounds that count although they were disturbed; None if unknown."""


@dataclass(frozen=True, slots=True)
class RoundVoid(Event):
    """A round was disturbed, does not count and is repeated."""

    number: int
    disturbance: str
    eta_seconds: float


@dataclass(frozen=True, slots=True)
class CandidateRefused(Event):
    """A candidate was refused: it was not accurate enough, failed, or was not faster."""

    trial: FinishedTrial
    reason: str


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """The search is over and best.yaml is written."""

    best: BestConfig
    path: Path
    remark: str | None = None
    """Sentence for the reader of the trials' ratios; mostly None."""
    seconds: float | None = None
    """Seconds of the runs of the search that came to their end; None if not known."""
    script: ScriptOptions | None = None
    """The script that was searched; None for a model.py."""
    own_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that stayed as the script has them, each with the reason."""


@dataclass(frozen=True, slots=True)
class NothingFeasible(Event):
    """The search is over and no file was written."""

    reasons: dict[str, int]
    """Number of times that each reason occurred."""
