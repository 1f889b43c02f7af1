"""Constraints of a search, and the verdict on one trial.

Every constraint is a margin in Optuna's sense: feasible at or below 0; above 0, the relative
excess over the limit. Each trial carries all margins, in the order of `CONSTRAINTS`. An unknown
margin is 0, which counts as feasible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import assert_never

from autotune.values.measurement import UNSTEADY, Measurement
from autotune.values.objectives import Objective
from autotune.values.outcome import (
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
from autotune.values.statistics import Decision, Interval, bounds, decide
from autotune.values.text import size

CONSTRAINTS = ("memory", "accuracy", "ran")
UNKNOWN = 0.0
# Least memory margin of a trial that ran out of memory, however little was missing.
_LEAST_EXCESS = 0.01
_FAILED = 1.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Loss of quality against the baseline that is still allowed."""

    amount: float
    relative: bool
    """True: `amount` is a share of the baseline's quality. False: an absolute difference."""

    def absolute(self, baseline: Sequence[float]) -> float:
        """Return the tolerance in the metric's unit, at least the baseline's standard deviation.

        The deviation over seeds counts only with more than two of them.
        """
        asked = self.amount * abs(fmean(baseline)) if self.relative else self.amount
        return max(asked, stdev(baseline)) if len(baseline) > 2 else asked  # noqa: PLR2004


@dataclass(frozen=True, slots=True)
class AccuracyRule:
    """Rule that judges qualities against the baseline's, paired by seed."""

    metric: str
    higher_is_better: bool
    baseline: tuple[float, ...]
    """The baseline's quality, one value per seed."""
    tolerance: float
    """Allowed mean loss, in the metric's unit."""
    minimum: float | None
    """Least mean quality, independent of the baseline; None: no floor."""

    def losses(self, qualities: Sequence[float]) -> tuple[float, ...]:
        """Return the loss of quality per paired seed, in the metric's unit; positive is worse."""
        sign = 1 if self.higher_is_better else -1
        paired = zip(self.baseline[: len(qualities)], qualities, strict=True)
        return tuple(sign * (b - q) for b, q in paired)

    def difference(self, qualities: Sequence[float]) -> tuple[float, Interval]:
        """Return the mean of quality minus the baseline's over paired seeds, with its bounds.

        The bounds are one-sided at 95 % each, infinite for one seed.
        """
        sign = -1 if self.higher_is_better else 1
        differences = [sign * loss for loss in self.losses(qualities)]
        return fmean(differences), bounds(differences)

    def decision(self, qualities: Sequence[float]) -> Decision:
        """Decide from the seeds so far; a mean quality below the floor is never accepted."""
        decision = decide(self.losses(qualities), self.tolerance)
        below = self.minimum is not None and fmean(qualities) < self.minimum
        return "undecided" if decision == "accept" and below else decision

    def margin(self, qualities: Sequence[float]) -> float:
        """Return the mean loss beyond the tolerance, or the lack to the floor, over the baseline.

        This graded point estimate tells samplers what to try next. `decision` says what may become
        the result.
        """
        return self._margin(fmean(self.losses(qualities)), qualities)

    def margin_in_doubt(self, qualities: Sequence[float]) -> float:
        """Return the margin of the upper 95 % bound of the mean loss."""
        return self._margin(bounds(self.losses(qualities))[1], qualities)

    def limit(self, seeds: int) -> float:
        """Return the worst mean quality that is allowed over the first `seeds` seeds."""
        mean = fmean(self.baseline[:seeds])
        if not self.higher_is_better:
            return mean + self.tolerance
        least = mean - self.tolerance
        return least if self.minimum is None else max(least, self.minimum)

    def objection(self, qualities: Sequence[float]) -> str:
        """Return why the qualities, one per seed, are not accepted: their mean and the limit."""
        mean, limit = fmean(qualities), self.limit(len(qualities))
        beyond = "below" if self.higher_is_better else "above"
        seeds = f"{len(qualities)} seed{'s' if len(qualities) > 1 else ''}"
        if self.margin(qualities) > 0:
            gap = f"{abs(limit - mean):.3g} {beyond} the limit {limit:.6g}"
            return f"accuracy: {self.metric} {mean:.6g} is {gap} ({seeds})"
        return f"accuracy: {self.metric} {mean:.6g} may be {beyond} the limit {limit:.6g} ({seeds})"

    def _margin(self, loss: float, qualities: Sequence[float]) -> float:
        excess = loss - self.tolerance
        if self.minimum is not None:
            excess = max(excess, self.minimum - fmean(qualities))
        return excess / (abs(fmean(self.baseline)) or 1.0)


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
            Probed() | Inspected() | SpeedLimits() | Diagnosed() | Profiled() | Gated() | Observed()
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
        reasons.append(objection or "accuracy: not good enough")
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
