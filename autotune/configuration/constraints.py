"""Constraints of a search, and the verdict on one trial.

Every constraint is a margin in Optuna's sense: feasible at or below 0; above 0, the relative
excess over the limit. Each trial carries all margins, in the order of `CONSTRAINTS`. An unknown
margin is 0, which counts as feasible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from autotune.values.measurement import UNSTEADY, Measurement
from autotune.values.objectives import Objective
from autotune.values.outcome import (
    CountedFlops,
    Crashed,
    Diagnosed,
    FirstLosses,
    Gated,
    Inspected,
    Lost,
    Measured,
    NonFinite,
    NotApplied,
    Observed,
    OutOfMemory,
    Probed,
    Profiled,
    Rejected,
    TimedOut,
    TrialOutcome,
    UserError,
    as_failure,
    describe,
)
from autotune.values.text import size

CONSTRAINTS = ("memory", "accuracy", "ran")
UNKNOWN = 0.0
# Least memory margin of a trial that ran out of memory, however little was missing.
_LEAST_EXCESS = 0.01
_FAILED = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of a trial: the objective's value, if there is one, and all margins."""

    value: float | None
    margins: Mapping[str, float]
    reason: str = ""
    """Reason for being infeasible; empty if feasible."""

    @property
    def feasible(self) -> bool:
        """Return True if every margin is at or below 0."""
        return all(margin <= 0 for margin in self.margins.values())


def judge(
    outcome: TrialOutcome,
    objective: Objective,
    memory_limit: int,
    accuracy: float | None = None,
    objection: str = "",
) -> Verdict:
    """Return the verdict on an outcome.

    Args:
        outcome: outcome of a trial.
        objective: the number to maximise.
        memory_limit: most memory that training may take, in bytes.
        accuracy: margin of the accuracy; None if unknown.
        objection: reason for a margin above 0: the value, the limit and the seeds.
    """
    match outcome:
        case Measured(measurement):
            found = _judge_measured(measurement, memory_limit, accuracy, objection)
            return Verdict(objective.value(measurement), *found)
        case OutOfMemory(_, _, peak):
            excess = (peak or 0) / memory_limit - 1
            return Verdict(None, _margins(memory=max(excess, _LEAST_EXCESS)), describe(outcome))
        case NonFinite():
            return Verdict(None, _margins(accuracy=_FAILED), describe(outcome))
        case TimedOut() | Crashed() | Rejected() | NotApplied() | UserError() | Lost():
            return Verdict(None, _margins(ran=_FAILED), describe(outcome))
        case (
            Probed()
            | Inspected()
            | CountedFlops()
            | Diagnosed()
            | Profiled()
            | Gated()
            | FirstLosses()
            | Observed()
        ):
            return judge(as_failure(outcome), objective, memory_limit)
        case _:
            assert_never(outcome)


def _judge_measured(
    measurement: Measurement, memory_limit: int, accuracy: float | None, objection: str
) -> tuple[Mapping[str, float], str]:
    """Return the margins of a measured trial, and the reasons for those above 0."""
    peak = measurement.peak_memory_bytes
    memory = peak / memory_limit - 1
    reasons = []
    if memory > 0:
        reasons.append(
            f"memory: {size(peak)} is {_excess(memory)} over the limit {size(memory_limit)}"
        )
    elif measurement.allocator_retries:
        reasons.append(f"memory: the allocator had to free cached memory, at {size(memory_limit)}")
    if measurement.allocator_retries:
        memory = max(memory, _LEAST_EXCESS)
    if accuracy is not None and accuracy > 0:
        reasons.append(objection)
    unsteady = UNSTEADY in measurement.flags
    if unsteady:
        reasons.append("never steady: torch.compile goes on compiling, or the clock jumps")
    ran = _FAILED if unsteady else -1.0
    margins = _margins(memory=memory, accuracy=UNKNOWN if accuracy is None else accuracy, ran=ran)
    return margins, "; ".join(reasons)


def _margins(
    memory: float = UNKNOWN, accuracy: float = UNKNOWN, ran: float = UNKNOWN
) -> dict[str, float]:
    return dict(zip(CONSTRAINTS, (memory, accuracy, ran), strict=True))


def _excess(margin: float) -> str:
    return f"{100 * margin:.3g} %"
