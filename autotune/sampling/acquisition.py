"""Acquisition functions over configurations, from surrogates of the rate and of feasibility.

A surrogate may never ask again for a value that did badly in one combination, though it would do
well in another. If a search makes no progress, its best configuration is therefore tried with the
least tried values: see `trials_without_gain` and `times_tried`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.sampling.encoding import Encoding
from autotune.sampling.memory import MemoryModel
from autotune.sampling.surrogate import Array, Indices, Surrogate, normal_below

# Default deviation of the logarithm of a timing: that of most machines.
_NOISE = 0.05
# Two posteriors that differ by more deviations than this are distinct.
_CLEARLY = 2.0


@dataclass(frozen=True, slots=True)
class Posterior:
    """Normal posterior of a configuration's log worth, up to a constant that all share."""

    mean: float = 0.0
    deviation: float = math.inf
    noise: float = _NOISE
    """Deviation of the logarithm of one more timing."""

    def after(self, mean: float, timings: int) -> Posterior:
        """Return the posterior after timings of this mean (product of two normal densities)."""
        before, then = self.deviation**-2, timings * self.noise**-2
        middle = mean if before == 0 else (before * self.mean + then * mean) / (before + then)
        return Posterior(middle, (before + then) ** -0.5, self.noise)

    def is_clearly_below(self, other: Posterior) -> bool:
        """Return whether this one is slower by more than two deviations of the difference."""
        return self.mean + _CLEARLY * math.hypot(self.deviation, other.deviation) < other.mean


GAIN = 1.01
"""Least ratio that counts as a gain; the best of many noisy timings rises by less anyway."""
_FEASIBLE, _INFEASIBLE = 0.0, 2.0
_LIMIT = 1.0
# Prior deviation of one knob's effect on the feasibility label.
_CONSTRAINT_DEVIATION = 0.4
# Deviations that the upper confidence bound adds to the mean.
_CURIOSITY = 2.0
# Prior mean and deviation of a batch doubling's effect on the label: as many samples are half as
# many updates. Both are judgements, which trials correct.
_DOUBLING, _DOUBTS = 0.5, 0.5


@dataclass(frozen=True)
class Observations:
    """The trials of a study, encoded."""

    rows: Indices
    """Configurations, shape (trials, knobs)."""
    rates: Array
    """Values by the objective, shape (trials,); 0 where none was measured."""
    feasible: list[bool]
    judged: list[bool]
    """True for trials whose feasibility is known; some trials were not probed."""
    peaks: Array
    """Peak memory over its limit, shape (trials,); NaN where unknown, `RAN_OUT` where it did."""

    @property
    def fitted(self) -> NDArray[np.bool_]:
        """Mask of the trials that did not exceed the memory, shape (trials,)."""
        return ~(self.peaks > 1)


class Acquisition:
    """Acquisition functions from two surrogates fitted to trials: of rate and of feasibility."""

    def __init__(self, encoding: Encoding, seen: Observations) -> None:
        self._encoding = encoding
        self._slope = self._fit_slope(seen)
        self._own = seen.rows[0] if len(seen.rows) else None
        self._rate, self._level = self._fit_rate(seen)
        self._constraint = self._fit_constraint(seen)
        self._memory = MemoryModel(encoding, seen.rows, seen.peaks)
        self._best = self._best_of(seen)

    def improvement(self, rows: Indices) -> Array:
        """Return the expected improvement of the log rate times the probability of feasibility."""
        mean, deviation = self._predicted(rows)
        return expected_improvement(mean, deviation, self._best) * self.feasible(rows)

    def upper_bound(self, rows: Indices) -> Array:
        """Return the upper confidence bound of the rate, weighted by feasibility.

        The bound is the mean and two deviations, relative to the best, through a softplus.
        """
        mean, deviation = self._predicted(rows)
        above = mean + _CURIOSITY * deviation - self._best
        # A softplus keeps the order and is positive, so that low feasibility always lowers it.
        return np.logaddexp(0.0, above) * self.feasible(rows)

    def feasible(self, rows: Indices) -> Array:
        """Return the probability that each row is feasible, shape (rows,)."""
        if self._constraint is None:
            return self._memory.fits(rows)
        mean, deviation = self._constraint.predict(rows)
        holds = normal_below((_LIMIT - mean - self._suspected(rows)) / deviation)
        return holds * self._memory.fits(rows)

    def posteriors(self, rows: Indices) -> list[Posterior]:
        """Return the posterior of each row's log rate, with the noise of one more timing."""
        mean, deviation = self._predicted(rows)
        noise = {} if self._rate is None else {"noise": self._rate.noise}
        return [
            Posterior(float(m), float(d), **noise) for m, d in zip(mean, deviation, strict=True)
        ]

    def _fit_rate(self, seen: Observations) -> tuple[Surrogate | None, float]:
        ran = np.flatnonzero(seen.rates > 0)
        if not len(ran):
            return None, 0.0
        surplus = np.log(seen.rates[ran]) - self._encoding.expected(seen.rows[ran])
        level = float(surplus.mean())
        surrogate = Surrogate(self._encoding.kernels, self._encoding.deviations)
        surrogate.fit(seen.rows[ran], surplus - level)
        return surrogate, level

    def _fit_constraint(self, seen: Observations) -> Surrogate | None:
        if not seen.fitted.any():
            return None
        rows = seen.rows[seen.fitted]
        labels = _labels(seen)[seen.fitted] - self._suspected(rows)
        deviations = np.full(len(self._encoding.deviations), _CONSTRAINT_DEVIATION)
        surrogate = Surrogate(self._encoding.kernels, deviations)
        surrogate.fit(rows, labels)
        return surrogate

    def _fit_slope(self, seen: Observations) -> float:
        """Return the effect of a batch doubling on the label, by Bayesian linear regression."""
        judged = np.array(seen.judged, dtype=bool) & seen.fitted
        if not judged.any():
            return _DOUBLING
        doublings = self._encoding.doublings(seen.rows[judged], seen.rows[0])
        labels = _labels(seen)[judged]
        prior = _DOUBTS**-2
        return float((_DOUBLING * prior + doublings @ labels) / (prior + doublings @ doublings))

    def _best_of(self, seen: Observations) -> float:
        """Return the highest posterior mean of the feasible trials; of all if none is feasible."""
        ran = seen.rates > 0
        held = ran & np.array(seen.feasible, dtype=bool)
        rows = seen.rows[held if held.any() else ran]
        return float(self._predicted(rows)[0].max()) if len(rows) else 0.0

    def _predicted(self, rows: Indices) -> tuple[Array, Array]:
        """Return posterior mean and deviation of the log rate of each row, each (rows,)."""
        expected = self._encoding.expected(rows) + self._level
        if self._rate is None:
            return expected, np.full(len(rows), float(self._encoding.deviations.max()))
        mean, deviation = self._rate.predict(rows)
        return mean + expected, deviation

    def _suspected(self, rows: Indices) -> Array:
        """Return the prior mean of each row's feasibility label, from its batch size."""
        assert self._own is not None
        return self._slope * self._encoding.doublings(rows, self._own)


def _labels(seen: Observations) -> Array:
    return np.array([_FEASIBLE if holds else _INFEASIBLE for holds in seen.feasible])


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return E[max(0, X - best)] of normal variables X (Mockus, 1975)."""
    z = (mean - best) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(deviation * (z * normal_below(z) + density))


def best_row(seen: Observations) -> Indices | None:
    """Return the row of the fastest feasible trial, shape (knobs,); None if there is none."""
    rates = _feasible_rates(seen)
    return seen.rows[int(np.argmax(rates))] if rates.any() else None


def trials_without_gain(seen: Observations) -> int:
    """Return the number of trials since the best feasible rate last rose by a percent."""
    rates, best, last = _feasible_rates(seen), 0.0, 0
    for place, rate in enumerate(rates):
        if rate > GAIN * best:
            best, last = float(rate), place
    return len(rates) - 1 - last


def times_tried(rows: Indices, best: Indices, seen: Observations) -> Array:
    """Return how often the value in which each row differs from `best` was tried, shape (rows,).

    The least tried value counts if there are several. A row equal to `best` gets the number of all
    trials.
    """
    counts = np.full(len(rows), float(len(seen.rows)))
    for column in range(rows.shape[1]):
        tried = (seen.rows[:, column] == rows[:, [column]]).sum(axis=1)
        differs = rows[:, column] != best[column]
        counts = np.where(differs, np.minimum(counts, tried), counts)
    return counts


def _feasible_rates(seen: Observations) -> Array:
    return np.where(np.array(seen.feasible, dtype=bool), seen.rates, 0.0)
