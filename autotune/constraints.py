"""The constraints of a search, and the verdict on one trial.

Every constraint is a margin in Optuna's sense: feasible at or below 0, above it by how much the
limit is passed, relative to the limit. Each trial carries all of them, in the order of
`CONSTRAINTS`; one that could not be told is 0, which neither holds it against the trial nor for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import assert_never

from autotune.measurement import Measurement
from autotune.non_inferiority import Decision, bounds, decide
from autotune.objectives import Objective
from autotune.outcome import (
    Crashed,
    Diagnosed,
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
    SpeedLimits,
    TimedOut,
    TrialOutcome,
    UserError,
    as_failure,
    describe,
)

CONSTRAINTS = ("memory", "accuracy", "ran")
UNKNOWN = 0.0
# The least that memory which ran out counts as passed, however little was missing.
_LEAST_EXCESS = 0.01
_FAILED = 1.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much worse than the baseline is still good enough."""

    amount: float
    relative: bool
    """Whether `amount` is a share of the baseline's quality rather than an absolute difference."""

    def absolute(self, baseline: Sequence[float]) -> float:
        """In the metric's own unit, never tighter than the baseline's spread over its seeds.

        Two say next to nothing of a spread, and count for none.
        """
        asked = self.amount * abs(fmean(baseline)) if self.relative else self.amount
        return max(asked, stdev(baseline)) if len(baseline) > 2 else asked  # noqa: PLR2004


@dataclass(frozen=True, slots=True)
class AccuracyRule:
    """When a quality is good enough, judged seed by seed against the baseline."""

    metric: str
    higher_is_better: bool
    baseline: tuple[float, ...]
    """The baseline's quality, one value per seed."""
    tolerance: float
    """In the metric's own unit."""
    minimum: float | None
    """A floor that holds whatever the baseline reaches."""

    def losses(self, qualities: Sequence[float]) -> tuple[float, ...]:
        """Loss of quality for each paired seed, in the metric's own unit; positive is worse."""
        sign = 1 if self.higher_is_better else -1
        paired = zip(self.baseline[: len(qualities)], qualities, strict=True)
        return tuple(sign * (b - q) for b, q in paired)

    def decision(self, qualities: Sequence[float]) -> Decision:
        """What the seeds so far prove; nothing is accepted below the floor."""
        decision = decide(self.losses(qualities), self.tolerance)
        below = self.minimum is not None and fmean(qualities) < self.minimum
        return "undecided" if decision == "accept" and below else decision

    def margin(self, qualities: Sequence[float]) -> float:
        """Mean loss beyond the tolerance, or what lacks to the floor, relative to the baseline.

        A point estimate, graded for samplers: it says what to try next. What may be emitted is
        for `decision` to say.
        """
        return self._margin(fmean(self.losses(qualities)), qualities)

    def margin_in_doubt(self, qualities: Sequence[float]) -> float:
        """The same for the largest mean loss that the seeds do not rule out."""
        return self._margin(bounds(self.losses(qualities))[1], qualities)

    def _margin(self, loss: float, qualities: Sequence[float]) -> float:
        excess = loss - self.tolerance
        if self.minimum is not None:
            excess = max(excess, self.minimum - fmean(qualities))
        return excess / (abs(fmean(self.baseline)) or 1.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial is worth: a value where it has one, and all its margins."""

    value: float | None
    margins: Mapping[str, float]
    reason: str = ""
    """Why it is not feasible; empty where it is."""

    @property
    def feasible(self) -> bool:
        """Whether every constraint holds."""
        return all(margin <= 0 for margin in self.margins.values())


def judge(
    outcome: TrialOutcome, objective: Objective, memory_limit: int, accuracy: float | None = None
) -> Verdict:
    """The verdict on an outcome; `accuracy` is the margin from a probe, where there was one."""
    match outcome:
        case Measured(measurement):
            return _judge_measured(measurement, objective, memory_limit, accuracy)
        case OutOfMemory(_, _, peak):
            excess = (peak or 0) / memory_limit - 1
            return Verdict(None, _margins(memory=max(excess, _LEAST_EXCESS)), describe(outcome))
        case NonFinite():
            return Verdict(None, _margins(accuracy=_FAILED), describe(outcome))
        case TimedOut() | Crashed() | Rejected() | NotApplied() | UserError() | Lost():
            return Verdict(None, _margins(ran=_FAILED), describe(outcome))
        case (
            Probed() | Inspected() | SpeedLimits() | Diagnosed() | Profiled() | Gated() | Observed()
        ):
            return judge(as_failure(outcome), objective, memory_limit)
        case _:
            assert_never(outcome)


def _judge_measured(
    measurement: Measurement, objective: Objective, memory_limit: int, accuracy: float | None
) -> Verdict:
    memory = measurement.peak_memory_bytes / memory_limit - 1
    if measurement.allocator_retries:
        memory = max(memory, _LEAST_EXCESS)
    reasons = []
    if memory > 0:
        reasons.append(f"memory: {_excess(memory)} over the limit")
    if accuracy is not None and accuracy > 0:
        reasons.append(f"accuracy: {_excess(accuracy)} worse than allowed")
    unsteady = "unsteady" in measurement.flags
    if unsteady:
        reasons.append("never steady: torch.compile goes on compiling, or the clock jumps")
    ran = _FAILED if unsteady else -1.0
    margins = _margins(memory=memory, accuracy=UNKNOWN if accuracy is None else accuracy, ran=ran)
    return Verdict(objective.value(measurement), margins, "; ".join(reasons))


def _margins(
    memory: float = UNKNOWN, accuracy: float = UNKNOWN, ran: float = UNKNOWN
) -> dict[str, float]:
    return dict(zip(CONSTRAINTS, (memory, accuracy, ran), strict=True))


def _excess(margin: float) -> str:
    return f"{100 * margin:.3g} %"
