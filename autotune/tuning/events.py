"""What happens during a search, as values: the search yields them, reporting draws them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.best import BestConfig
from autotune.config import TrainingConfig
from autotune.intervals import Interval
from autotune.space import SearchSpace
from autotune.tuning.diagnosis import Diagnosis
from autotune.tuning.scene import Scene
from autotune.tuning.storing.study import FinishedTrial

Phase = Literal["baseline", "diagnosis", "search", "confirmation"]


@dataclass(frozen=True, slots=True)
class Planned:
    """The search is about to start, or to continue."""

    scene: Scene
    finished_before: int


@dataclass(frozen=True, slots=True)
class StagesTimed:
    """What each stage of training takes is known, and what need not be searched."""

    diagnosis: Diagnosis
    space: SearchSpace
    """Without what cannot matter."""


@dataclass(frozen=True, slots=True)
class StagesUnknown:
    """There is no diagnosis, so that everything is searched."""

    reason: str


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """A part of the search begins."""

    phase: Phase
    detail: str
    eta_seconds: float | None = None
    """An estimate of the time until the answer, as in the events below."""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A part of a phase is about to run: a process of several before the trials, or a play-off."""

    detail: str
    eta_seconds: float


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """A configuration is about to be measured; where that is lost, no `TrialEnded` follows."""

    number: int
    config: TrainingConfig


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """One more trial is in the study."""

    trial: FinishedTrial
    baseline: FinishedTrial
    best: FinishedTrial
    elapsed_seconds: float
    eta_seconds: float | None


@dataclass(frozen=True, slots=True)
class LeadLost:
    """What led is not accurate enough, as further seeds show; nor is what was trained alike."""

    trial: FinishedTrial
    reason: str
    best: FinishedTrial
    """Leads from now on."""
    baseline: FinishedTrial


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something is not searched any more, and why."""

    note: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that a person had better know, and what to do."""

    warning: str


@dataclass(frozen=True, slots=True)
class TrialsEnded:
    """No further trial comes."""

    reason: str


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """The baseline and a candidate were timed once more, each in a fresh process."""

    config: TrainingConfig
    ratios: tuple[float, ...]
    interval: Interval
    eta_seconds: float | None = None
    """Until the answer, if the next look decides."""


@dataclass(frozen=True, slots=True)
class CandidateRefused:
    """A configuration that looked best did not hold."""

    trial: FinishedTrial
    reason: str


@dataclass(frozen=True, slots=True)
class CandidateSetAside:
    """Another goes on in its place: a faster one, or one as fast with fewer changes."""

    trial: FinishedTrial
    other: FinishedTrial


@dataclass(frozen=True, slots=True)
class Answered:
    """The search is over: best.yaml is written."""

    best: BestConfig
    path: Path


@dataclass(frozen=True, slots=True)
class NothingFeasible:
    """The search is over and no file was written; each reason with its count."""

    reasons: dict[str, int]


Event = (
    Planned
    | StagesTimed
    | StagesUnknown
    | PhaseStarted
    | StepStarted
    | TrialStarted
    | TrialEnded
    | LeadLost
    | LeftOut
    | Warned
    | TrialsEnded
    | RoundEnded
    | CandidateRefused
    | CandidateSetAside
    | Answered
    | NothingFeasible
)
