"""What a configuration promises, by what a study has seen so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.tuning.confirming.belief import Belief
from autotune.tuning.sampling.encoding import Encoding
from autotune.tuning.sampling.surrogate import Array, Indices, Surrogate

_FEASIBLE, _INFEASIBLE = 0.0, 2.0
_LIMIT = 1.0
# By how much one knob may be expected to move a configuration from feasible to not.
_CONSTRAINT_DEVIATION = 0.4
_CURIOSITY = 2.0
# By how much each doubling of the batch is expected to: as many samples are half as many updates.
# It is a judgement, of this deviation, which trials correct.
_DOUBLING, _DOUBTS = 0.5, 0.5


@dataclass(frozen=True)
class Seen:
    """The trials of a study; a rate is 0 where none was measured."""

    rows: Indices
    rates: Array
    feasible: list[bool]
    judged: list[bool]
    """Whether it is known of each that it is feasible, or is not: not all were worth a probe."""


class Promise:
    """Two surrogates fitted to trials: one of the rate, one of being feasible."""

    def __init__(self, encoding: Encoding, seen: Seen) -> None:
        self._encoding = encoding
        self._slope = self._fit_slope(seen)
        self._own = seen.rows[0] if len(seen.rows) else None
        self._rate, self._level = self._fit_rate(seen)
        self._constraint = self._fit_constraint(seen)
        self._best = self._best_of(seen)

    def improvement(self, rows: Indices) -> Array:
        """Expected improvement over the best, as a logarithm, where feasible."""
        mean, deviation = self._predicted(rows)
        return expected_improvement(mean, deviation, self._best) * self.feasible(rows)

    def upper_bound(self, rows: Indices) -> Array:
        """What is known least and may yet be good: mean and two deviations, where feasible."""
        mean, deviation = self._predicted(rows)
        above = mean + _CURIOSITY * deviation - self._best
        # A softplus keeps the order and is positive, so that feasibility only takes away.
        return np.logaddexp(0.0, above) * self.feasible(rows)

    def feasible(self, rows: Indices) -> Array:
        """Probability of being feasible."""
        if self._constraint is None:
            return np.ones(len(rows))
        mean, deviation = self._constraint.predict(rows)
        return normal_below((_LIMIT - mean - self._suspected(rows)) / deviation)

    def beliefs(self, rows: Indices) -> list[Belief]:
        """What all trials together tell of each row, with the noise of one more timing of it."""
        mean, deviation = self._predicted(rows)
        noise = {} if self._rate is None else {"noise": self._rate.noise}
        return [Belief(float(m), float(d), **noise) for m, d in zip(mean, deviation, strict=True)]

    def _fit_rate(self, seen: Seen) -> tuple[Surrogate | None, float]:
        ran = np.flatnonzero(seen.rates > 0)
        if not len(ran):
            return None, 0.0
        surplus = np.log(seen.rates[ran]) - self._encoding.expected(seen.rows[ran])
        level = float(surplus.mean())
        surrogate = Surrogate(self._encoding.kernels, self._encoding.deviations)
        surrogate.fit(seen.rows[ran], surplus - level)
        return surrogate, level

    def _fit_constraint(self, seen: Seen) -> Surrogate | None:
        if not len(seen.rows):
            return None
        labels = _labels(seen) - self._suspected(seen.rows)
        deviations = np.full(len(self._encoding.deviations), _CONSTRAINT_DEVIATION)
        surrogate = Surrogate(self._encoding.kernels, deviations)
        surrogate.fit(seen.rows, labels)
        return surrogate

    def _fit_slope(self, seen: Seen) -> float:
        """By how much a doubling of the batch moves the label (Bayesian linear regression)."""
        if not any(seen.judged):
            return _DOUBLING
        judged = np.array(seen.judged)
        doublings = self._encoding.doublings(seen.rows[judged], seen.rows[0])
        labels = _labels(seen)[judged]
        prior = _DOUBTS**-2
        return float((_DOUBLING * prior + doublings @ labels) / (prior + doublings @ doublings))

    def _best_of(self, seen: Seen) -> float:
        """The best of the feasible trials, less the noise of each; of all where none is."""
        ran = seen.rates > 0
        held = ran & np.array(seen.feasible, dtype=bool)
        rows = seen.rows[held if held.any() else ran]
        return float(self._predicted(rows)[0].max()) if len(rows) else 0.0

    def _predicted(self, rows: Indices) -> tuple[Array, Array]:
        """Mean and deviation of the logarithm of the rate."""
        expected = self._encoding.expected(rows) + self._level
        if self._rate is None:
            return expected, np.full(len(rows), float(self._encoding.deviations.max()))
        mean, deviation = self._rate.predict(rows)
        return mean + expected, deviation

    def _suspected(self, rows: Indices) -> Array:
        """What each row's label is expected to be before anything is known."""
        assert self._own is not None
        return self._slope * self._encoding.doublings(rows, self._own)


def _labels(seen: Seen) -> Array:
    return np.array([_FEASIBLE if holds else _INFEASIBLE for holds in seen.feasible])


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """E[max(0, X - best)] of normal variables (Mockus, 1975)."""
    z = (mean - best) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(deviation * (z * normal_below(z) + density))


def normal_below(z: Array) -> Array:
    """Probability that a standard normal variable is below each of `z`."""
    # scipy would do it, and takes longer to import than this does in a whole search.
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])


def best_first(promises: Array) -> Sequence[int]:
    """Positions in falling order of what they promise."""
    return [int(place) for place in np.argsort(-promises, kind="stable")]
