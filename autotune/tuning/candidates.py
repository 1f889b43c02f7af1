"""Which trials are put to the test at the end of a search, and which of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.measurement import CANNOT_WIN
from autotune.tuning.costs import ColdCosts
from autotune.tuning.session import Session
from autotune.tuning.study import FinishedTrial

_MOST = 3


@dataclass(frozen=True)
class Candidate:
    """A trial with what it is worth by the objective, and the interval of that."""

    trial: FinishedTrial
    value: float
    low: float
    high: float


def candidates(session: Session, costs: ColdCosts) -> list[Candidate]:
    """The fastest feasible trials, fastest first; what was too slow to be probed yet included."""
    least = _candidate(session, costs, session.baseline).value
    feasible = [
        _candidate(session, costs, trial)
        for trial in session.study.finished()[1:]
        if trial.verdict.feasible and not CANNOT_WIN & set(trial.details.get("flags", ()))
    ]
    faster = [one for one in feasible if one.value > least]
    return sorted(faster, key=lambda one: -one.value)[:_MOST]


def contenders(pool: Sequence[Candidate]) -> list[Candidate]:
    """The first, and those whose intervals reach its own: the search could not tell them apart."""
    return [one for one in pool if one is pool[0] or one.high >= pool[0].low]


def _candidate(session: Session, costs: ColdCosts, trial: FinishedTrial) -> Candidate:
    """Valued as if it had compiled itself: which of two trials was the first to is chance."""
    details, worth = trial.details, session.scene.objective.worth
    fixed, speed = costs.fixed_seconds_of(trial), details.get("machine_speed", 1.0)
    rates = (details["samples_per_second"], *details["samples_per_second_ci95"])
    return Candidate(trial, *(worth(rate / speed, fixed) for rate in rates))
