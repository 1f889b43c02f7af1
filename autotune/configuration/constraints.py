"""The objective of a search, its constraints, the verdict on a trial, and the rule of accuracy.

Every constraint is a margin in Optuna's sense: feasible at or below 0; above 0, the relative excess
over the limit. Each trial carries all margins, in the order of `CONSTRAINTS`. An unknown margin is
0, which counts as feasible. `AccuracyRule` says which loss of quality is allowed, and decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from autotune.values import outcome as outcomes
from autotune.values import statistics
from autotune.values.measurement import UNSTEADY, Measurement
from autotune.values.text import size


@dataclass(frozen=True, slots=True)
class Objective:
    """The number that a search maximises: throughput X, or the inverse of a time.

    The mean throughput of a run of N samples is N / (T_fix + N / X). T_fix are the one-time
    seconds, compilation included. For N to infinity it becomes X. To a loss that takes M samples,
    it is X / M. Optuna sees its inverse, the seconds, and minimises them.
    """

    run_samples: int | None = None
    """Samples in the run; None: a run without end."""
    unit: str = "samples/s"
    to_loss: bool = False
    loss: float | None = None
    """Training loss to reach; None: the one that the user's settings reach in a short training."""
    samples_to_loss: float = 1.0
    """Samples that a configuration takes to that loss."""

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """Return the direction in which Optuna sees it."""
        return "minimize" if self.to_loss else "maximize"

    @property
    def name(self) -> str:
        """Return the name by which a study notes it."""
        if self.to_loss:
            return "time_to_loss"
        return "throughput" if self.run_samples is None else "run_time"

    @property
    def identity(self) -> str:
        """Return the text that must stay the same for a study to be continued."""
        target = self.loss if self.to_loss else self.run_samples
        return self.name if target is None else f"{self.name} of {target}"

    def value(self, run: Measurement) -> float:
        """Return the objective's value for one process, corrected for the machine's drift."""
        return self.worth(run.samples_per_second / run.machine_speed, fixed_seconds(run))

    def worth(self, rate: float, fixed: float) -> float:
        """Return it for the steady state's samples per second and the one-time seconds."""
        if self.to_loss:
            return rate / self.samples_to_loss
        if self.run_samples is None:
            return rate
        return self.run_samples / (fixed + self.run_samples / rate)


THROUGHPUT = Objective()


def fixed_seconds(run: Measurement, cold_one_time_seconds: float = 0.0) -> float:
    """Return the seconds that a run pays once: start, building, compilation, warm-up.

    Those of the first process with these settings, `cold_one_time_seconds`, count if they are more,
    because later ones find compiled code in the cache.
    """
    one_time = max(run.one_time_seconds, cold_one_time_seconds)
    return run.start_seconds + run.build_seconds + one_time


CONSTRAINTS = ("memory", "accuracy", "ran")
UNKNOWN = 0.0
VALUE = "value"
"""Attribute of a trial with the value of its verdict."""
# Least memory margin of a trial that ran out of memory, however little was missing.
_LEAST_EXCESS = 0.01
_FAILED = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a trial: the objective's value, if there is one, and all margins."""

    value: float | None
    margins: Mapping[str, float]
    reason: str = ""
    """Reason for being infeasible; empty if feasible."""

    @property
    def feasible(self) -> bool:
        """Return True if every margin is at or below 0."""
        return all(margin <= 0 for margin in self.margins.values())


def judge(
    outcome: outcomes.TrialOutcome,
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
    if isinstance(outcome, outcomes.Measured):
        found = _judge_measured(outcome.measurement, memory_limit, accuracy, objection)
        return Verdict(objective.value(outcome.measurement), *found)
    failure = outcomes.as_failure(outcome)
    match failure:
        case outcomes.OutOfMemory(_, _, peak):
            margins = _margins(memory=max((peak or 0) / memory_limit - 1, _LEAST_EXCESS))
        case outcomes.NonFinite():
            margins = _margins(accuracy=_FAILED)
        case _:
            margins = _margins(ran=_FAILED)
    return Verdict(None, margins, outcomes.describe(failure))


def _judge_measured(
    measurement: Measurement, memory_limit: int, accuracy: float | None, objection: str
) -> tuple[Mapping[str, float], str]:
    """Return the margins of a measured trial, and the reasons for those above 0."""
    peak = measurement.peak_memory_bytes
    memory = peak / memory_limit - 1
    reasons = []
    if memory > 0:
        reasons.append(
            f"memory: {size(peak)} is {100 * memory:.3g} % over the limit {size(memory_limit)}"
        )
    elif measurement.allocator_retries:
        reasons.append(f"memory: at the limit {size(memory_limit)}, torch had to free its cache")
    if measurement.allocator_retries:
        memory = max(memory, _LEAST_EXCESS)
    if accuracy is not None and accuracy > 0:
        reasons.append(objection)
    unsteady = UNSTEADY in measurement.flags
    if unsteady:
        reasons.append("its speed never settled: torch.compile recompiles, or the clock jumps")
    ran = _FAILED if unsteady else -1.0
    margins = _margins(memory=memory, accuracy=UNKNOWN if accuracy is None else accuracy, ran=ran)
    return margins, "; ".join(reasons)


def _margins(
    memory: float = UNKNOWN, accuracy: float = UNKNOWN, ran: float = UNKNOWN
) -> dict[str, float]:
    return dict(zip(CONSTRAINTS, (memory, accuracy, ran), strict=True))


UNNOTICED = 0.08
"""Error that is no fault, as a share of what it is an error of.

It lies between the gradients of channels_last in an untrained ShuffleNet (0.035 to 0.068), which
only round, and a loss that is reported 10 % too high.
"""
OF_SPLIT = {True: 2.0**-14, False: 2.0**-10}
"""Difference of the summed gradients of micro-batches that is rounding, in float64 or not.

In float64 it leaves room for a layer that computes in float32 all the same. Without float64 it is
the epsilon of float16 and TF32.
"""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Loss of quality against the baseline that is still allowed."""

    amount: float
    relative: bool
    """True: `amount` is a share. Of a loss it is a share of what the baseline's training gained, of
    another quality, or where the loss before training is unknown, a share of the baseline's value.
    False: an absolute difference."""

    def absolute(self, baseline: Sequence[float], untrained: float | None = None) -> float:
        """Return the tolerance in the metric's unit.

        Args:
            baseline: quality of the baseline, one per seed.
            untrained: the first seed's loss before training; None if the quality is no loss, or not
                known.
        """
        if not self.relative:
            return self.amount
        if untrained is None:
            return self.amount * abs(fmean(baseline))
        return self.amount * max(0.0, untrained - baseline[0])

    def words(self, metric: str, baseline: Sequence[float], untrained: float | None) -> str:
        """Return what the tolerance is, for the same arguments as `absolute`."""
        if not self.relative:
            return "as asked"
        if untrained is None:
            return f"{100 * self.amount:g} % of your {metric}"
        asked = f"{100 * self.amount:g} % of what training gained"
        values = f"{metric} {untrained:.4g} before, {baseline[0]:.4g} after, with seed 0"
        if untrained > baseline[0]:
            return f"{asked} ({values})"
        return f"{asked}, but a short training gained nothing ({values}); raise --accuracy-samples"


def inconclusive(metric: str, reached: tuple[float, float | None], limit: float, seeds: int) -> str:
    """Return a clause on a quality whose seeds do not show that it keeps its limit.

    `reached` are its mean over the seeds, and the worse end of its 95 % interval, if there is one;
    `limit` is the worst mean that is allowed.
    """
    mean, bound = reached
    count = f"{seeds} seed{'s' if seeds > 1 else ''}"
    if bound is None:
        return f"{metric} {mean:.6g}, limit {limit:.6g} ({count})"
    side, sign, end = ("lower", "<", "minimum") if bound < mean else ("upper", ">", "maximum")
    return f"{metric} {mean:.6g}, 95 % {side} bound {bound:.6g} {sign} {end} {limit:.6g} ({count})"


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

    def difference(self, qualities: Sequence[float]) -> tuple[float, statistics.Interval]:
        """Return the mean of quality minus the baseline's over paired seeds, with its bounds.

        The bounds are one-sided, infinite for one seed. Each holds at all tests together with 95 %.
        """
        sign = -1 if self.higher_is_better else 1
        differences = [sign * loss for loss in self.losses(qualities)]
        return fmean(differences), statistics.bounds(
            differences, self._step(qualities), statistics.EACH_CONFIDENCE
        )

    def decision(self, qualities: Sequence[float]) -> statistics.Decision:
        """Decide from the seeds so far; a mean quality below the floor is never accepted."""
        decision = statistics.decide(self.losses(qualities), self.tolerance, self._step(qualities))
        below = self.minimum is not None and fmean(qualities) < self.minimum
        return "undecided" if decision == "accept" and below else decision

    def seeds_wanted(self, qualities: Sequence[float]) -> int:
        """Return the number of seeds to draw in all until the next test that may decide.

        It is the number so far if they decided. The seeds of the last test are wanted only if it
        would accept, should they turn out like those so far.
        """
        known = len(qualities)
        if known and self.decision(qualities) != "undecided":
            return known
        coming = [count for count in statistics.SEED_COUNTS if count > known]
        if coming and known == statistics.SEED_COUNTS[-2]:
            is_enough = self.minimum is None or fmean(qualities) >= self.minimum
            losses, step = self.losses(qualities), self._step(qualities)
            if not (is_enough and statistics.may_accept(losses, self.tolerance, step)):
                return known
        return coming[0] if coming else known

    def margin(self, qualities: Sequence[float]) -> float:
        """Return the mean loss beyond the tolerance or below the floor, relative to the baseline.

        This graded point estimate guides samplers. `decision` says what may become the result.
        """
        return self._margin(fmean(self.losses(qualities)), qualities)

    def margin_in_doubt(self, qualities: Sequence[float]) -> float:
        """Return the margin of the upper 95 % bound of the mean loss."""
        return self._margin(self._bounds(qualities)[1], qualities)

    def limit(self, seeds: int) -> float:
        """Return the worst mean quality that is allowed over the first `seeds` seeds."""
        mean = fmean(self.baseline[:seeds])
        if not self.higher_is_better:
            return mean + self.tolerance
        least = mean - self.tolerance
        return least if self.minimum is None else max(least, self.minimum)

    def floor_words(self, seeds: int) -> str:
        """Return the floor in words, to follow the tolerance's; empty if it does not bind."""
        binds = self.minimum is not None and self.limit(seeds) == self.minimum
        return f", and at least {self.minimum:g}" if binds else ""

    def bound(self, qualities: Sequence[float]) -> float | None:
        """Return the worst mean quality that is likely, by 95 %; None for one seed."""
        if len(qualities) == 1:
            return None
        sign = -1 if self.higher_is_better else 1
        return fmean(self.baseline[: len(qualities)]) + sign * self._bounds(qualities)[1]

    def objection(self, qualities: Sequence[float]) -> str:
        """Return why the qualities, one per seed, are not accepted: their mean, or its bound."""
        mean, seeds = fmean(qualities), len(qualities)
        limit = self.limit(seeds)
        is_below_floor = self.minimum is not None and mean < self.minimum
        if is_below_floor or self.decision(qualities) == "reject":
            end = "minimum" if self.higher_is_better else "maximum"
            count = f"{seeds} seed{'s' if seeds > 1 else ''}"
            return f"{self.metric} is {mean:.6g}, {end} {limit:.6g} ({count})"
        why = inconclusive(self.metric, (mean, self.bound(qualities)), limit, seeds)
        return f"inconclusive: {why}"

    def _bounds(self, qualities: Sequence[float]) -> statistics.Interval:
        """Return the bounds of the mean loss."""
        return statistics.bounds(
            self.losses(qualities), self._step(qualities), statistics.EACH_CONFIDENCE
        )

    def _step(self, qualities: Sequence[float]) -> float:
        """Return the resolution of the quality, as far as these values show it."""
        return statistics.resolution((*self.baseline[: len(qualities)], *qualities))

    def _margin(self, loss: float, qualities: Sequence[float]) -> float:
        excess = loss - self.tolerance
        if self.minimum is not None:
            excess = max(excess, self.minimum - fmean(qualities))
        return excess / (abs(fmean(self.baseline)) or 1.0)
