"""Surrogates of the rate, of memory and of feasibility, and acquisition functions from them.

A surrogate may never ask again for a value that did badly in one combination, though it would do
well in another. If a search makes no progress, its best configuration is therefore tried with the
least tried values: see `trials_without_gain` and `times_tried`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.knobs import KNOBS, knob_named
from autotune.sampling.encoding import Array, Encoding, Indices

# Prior variance of the overall level of the values, which is not known.
_LEVEL = 1.0
_NOISES = (0.02, 0.05, 0.15)
_PAIRS = (0.2, 1.0)
"""Start values for the variance of all pairs, relative to that of single knobs."""
_FACTORS = (0.2, 5.0)
# Log evidence that each factor of five away from the prior has to gain.
_CAUTION = 0.5
_SWEEPS = 2


@dataclass(frozen=True)
class Scales:
    """Fitted hyperparameters of the kernel."""

    knobs: Array
    """Variance of each knob's effect, shape (knobs,)."""
    pairs: float
    """Variance of all pairs together, relative to that of single knobs."""
    noise: float
    """Deviation of a trial, in the unit of the values."""


class Surrogate:
    """A Gaussian process over knobs, which predicts all configurations from a few trials.

    The kernel is a sum over knobs and over pairs of knobs (Duvenaud, Nickisch and Rasmussen,
    "Additive Gaussian Processes", 2011). On a logarithmic scale most settings add their gain
    independently, and most interactions are between two of them. A trial thus informs on every
    configuration that shares a setting with it; with a product kernel only on near ones. Maximising
    the evidence finds how much each knob matters.
    """

    def __init__(
        self, kernels: Sequence[Array], prior: Array, trials: Indices, values: Array
    ) -> None:
        """Fit to `trials` (n, knobs) and their `values` (n,), whose mean should be about 0.

        `kernels` has the similarities of each knob's values, 0 to 1, `prior` (knobs,) the prior
        deviation of its effect.
        """
        self._kernels, self._prior = kernels, prior**2
        self._trials, self._values = trials, values
        columns = zip(self._kernels, trials.T, strict=True)
        self._parts = np.stack([kernel[np.ix_(column, column)] for kernel, column in columns])
        self._scales = self._best_scales()
        self._root = _root(self._covariance(self._parts, self._scales), self._scales.noise)
        self._weights = _solved(self._root, values)

    def predict(self, others: Indices) -> tuple[Array, Array]:
        """Return the posterior mean and deviation of `others` (m, knobs), each (m,).

        The deviation does not include the noise of a trial.
        """
        columns = zip(self._kernels, others.T, self._trials.T, strict=True)
        parts = np.stack([kernel[np.ix_(a, b)] for kernel, a, b in columns])
        cross = self._covariance(parts, self._scales)
        half = np.linalg.solve(self._root, cross.T)
        own = self._covariance(np.ones((len(self._kernels), 1, 1)), self._scales)[0, 0]
        variance = np.maximum(own - (half**2).sum(axis=0), 1e-12)
        return cross @ self._weights, np.sqrt(variance)

    @property
    def noise(self) -> float:
        """Fitted deviation of a trial from the value of its configuration."""
        return self._scales.noise

    def _best_scales(self) -> Scales:
        """Maximise the score by coordinate ascent from the prior, in factors of five."""
        starts = [Scales(self._prior, pairs, noise) for noise in _NOISES for pairs in _PAIRS]
        best = max(starts, key=self._score)
        score = self._score(best)
        for _ in range(_SWEEPS):
            for knob in range(len(self._prior)):
                for factor in _FACTORS:
                    knobs = best.knobs.copy()
                    knobs[knob] *= factor
                    other = Scales(knobs, best.pairs, best.noise)
                    found = self._score(other)
                    if found > score:
                        best, score = other, found
        return best

    def _score(self, scales: Scales) -> float:
        """Return the log evidence, less a penalty for the distance of the scales from the prior."""
        root = _root(self._covariance(self._parts, scales), scales.noise)
        fit = -0.5 * np.dot(self._values, _solved(root, self._values))
        surprise = np.abs(np.log(scales.knobs / self._prior)).sum() / np.log(5.0)
        return float(fit - np.log(np.diag(root)).sum() - _CAUTION * surprise)

    @staticmethod
    def _covariance(parts: Array, scales: Scales) -> Array:
        """Return the covariance (n, m) of configurations from their similarity (knobs, n, m)."""
        weighted = scales.knobs[:, None, None] * parts
        single = weighted.sum(axis=0)
        pairs = (single**2 - (weighted**2).sum(axis=0)) / 2
        together = max(float((scales.knobs.sum() ** 2 - (scales.knobs**2).sum()) / 2), 1e-12)
        share = scales.pairs * float(scales.knobs.sum()) / together
        return np.asarray(_LEVEL + single + share * pairs)


def normal_below(z: Array) -> Array:
    """Return the probability that a standard normal variable is below each of `z`."""
    # Importing scipy would take longer than this does in a whole search.
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])


def _root(covariance: Array, noise: float) -> Array:
    """Return the Cholesky factor of a covariance with the noise of a trial."""
    noisy = covariance + noise**2 * np.eye(len(covariance))
    return np.asarray(np.linalg.cholesky(noisy), dtype=np.float64)


def _solved(root: Array, values: Array) -> Array:
    half = np.linalg.solve(root, values)
    return np.asarray(np.linalg.solve(root.T, half), dtype=np.float64)


RAN_OUT = np.inf
"""Peak of a trial that ran out of memory."""
# Prior mean and deviation of what a doubling of the batch adds to the logarithm: all of log 2 where
# activations take the memory, nothing where weights do.
_DOUBLING_TAKES, _DOUBLING_DOUBTS = 0.5, 0.2
# Prior effect of each knob on the logarithm where it is not at its default, and its deviation: a
# judgement, which the first few trials outweigh.
_TAKES = {
    "batch_size": (0.0, 0.3),
    "amp_dtype": (-0.3, 0.2),
    "compile_mode": (-0.1, 0.2),
    "activation_checkpointing": (-0.5, 0.4),
    "activation_memory_budget": (-0.3, 0.3),
    "sdpa_backend": (0.0, 0.2),
}
_ELSE_TAKES, _OWN_TAKES = (0.0, 0.05), (0.0, 0.3)
# Deviation of a trial from the trend.
_OFF_TREND = 0.3


class MemoryModel:
    """A surrogate of the logarithm of the peak memory over its limit, about a trend in the batch.

    How much of the limit a trial took says more of twice its batch than that it fitted. A trial
    that ran out of memory has no peak: it gets the mean prediction above the limit.
    """

    def __init__(self, encoding: Encoding, rows: Indices, peaks: Array) -> None:
        """Fit to the configurations of trials, shape (trials, knobs).

        `peaks` is the peak memory over the limit, shape (trials,): NaN where unknown, or `RAN_OUT`.
        """
        self._encoding = encoding
        self._surrogate: Surrogate | None = None
        # A device on which nothing was allocated shows nothing.
        known = np.isfinite(peaks) & (peaks > 0)
        if not known.any():
            return
        self._own = rows[known][0]
        logs = np.log(peaks[known])
        # The effect of a batch doubling, by Bayesian linear regression.
        doublings, prior = self._doublings(rows[known]), (_OFF_TREND / _DOUBLING_DOUBTS) ** 2
        gain = doublings @ (logs - logs[0])
        self._slope = float((_DOUBLING_TAKES * prior + gain) / (prior + doublings @ doublings))
        self._fit(rows[known], logs)
        ran_out = np.isposinf(peaks)
        if ran_out.any():
            # The mean of each where it is above the limit: a truncated normal's.
            mean, deviation = self._predicted(rows[ran_out])
            z = mean / deviation
            density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            more = mean + deviation * density / np.maximum(normal_below(z), 1e-12)
            self._fit(np.concatenate([rows[known], rows[ran_out]]), np.concatenate([logs, more]))

    def fits(self, rows: Indices) -> Array:
        """Return the probability that each row fits, shape (rows,)."""
        if self._surrogate is None:
            return np.ones(len(rows))
        mean, deviation = self._predicted(rows)
        return normal_below(-mean / np.hypot(deviation, self._surrogate.noise))

    def _fit(self, rows: Indices, logs: Array) -> None:
        rest = logs - self._trend(rows)
        self._level = float(rest[0])
        deviations = np.array([_takes(name)[1] for name in self._encoding.values])
        kernels = self._encoding.kernels
        self._surrogate = Surrogate(kernels, deviations, rows, rest - self._level)

    def _predicted(self, rows: Indices) -> tuple[Array, Array]:
        """Return the mean and deviation of the logarithm, each (rows,)."""
        assert self._surrogate is not None
        mean, deviation = self._surrogate.predict(rows)
        return mean + self._level + self._trend(rows), deviation

    def _trend(self, rows: Indices) -> Array:
        """Return the prior mean of the logarithm, up to a constant, shape (rows,)."""
        trend = self._slope * self._doublings(rows)
        for column, (name, values) in enumerate(self._encoding.values.items()):
            effect, default = _takes(name)[0], knob_named(name).default
            trend += effect * np.array([value != default for value in values])[rows[:, column]]
        return trend

    def _doublings(self, rows: Indices) -> Array:
        return self._encoding.doublings_of("batch_size", rows, self._own)


def _takes(name: str) -> tuple[float, float]:
    return _TAKES.get(name, _ELSE_TAKES if name in KNOBS else _OWN_TAKES)


# Two posteriors that differ by more deviations than this are distinct.
_CLEARLY = 2.0


@dataclass(frozen=True, slots=True)
class Posterior:
    """Normal posterior of a configuration's log worth, up to a constant that all share."""

    mean: float = 0.0
    deviation: float = math.inf

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
    feasible: NDArray[np.bool_]
    judged: NDArray[np.bool_]
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
        """Return the posterior of each row's log rate."""
        mean, deviation = self._predicted(rows)
        return [Posterior(float(m), float(d)) for m, d in zip(mean, deviation, strict=True)]

    def _fit_rate(self, seen: Observations) -> tuple[Surrogate | None, float]:
        ran = np.flatnonzero(seen.rates > 0)
        if not len(ran):
            return None, 0.0
        rows, encoding = seen.rows[ran], self._encoding
        surplus = np.log(seen.rates[ran]) - encoding.expected(rows)
        level = float(surplus.mean())
        return Surrogate(encoding.kernels, encoding.deviations, rows, surplus - level), level

    def _fit_constraint(self, seen: Observations) -> Surrogate | None:
        if not seen.fitted.any():
            return None
        rows = seen.rows[seen.fitted]
        labels = _labels(seen)[seen.fitted] - self._suspected(rows)
        deviations = np.full(len(self._encoding.deviations), _CONSTRAINT_DEVIATION)
        return Surrogate(self._encoding.kernels, deviations, rows, labels)

    def _fit_slope(self, seen: Observations) -> float:
        """Return the effect of a batch doubling on the label, by Bayesian linear regression."""
        judged = seen.judged & seen.fitted
        if not judged.any():
            return _DOUBLING
        doublings = self._encoding.doublings(seen.rows[judged], seen.rows[0])
        labels = _labels(seen)[judged]
        prior = _DOUBTS**-2
        return float((_DOUBLING * prior + doublings @ labels) / (prior + doublings @ doublings))

    def _best_of(self, seen: Observations) -> float:
        """Return the highest posterior mean of the feasible trials; of all if none is feasible."""
        ran = seen.rates > 0
        held = ran & seen.feasible
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
    return np.where(seen.feasible, _FEASIBLE, _INFEASIBLE)


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

    The least tried of several values counts. A row equal to `best` gets the number of trials.
    """
    counts = np.full(len(rows), float(len(seen.rows)))
    for column in range(rows.shape[1]):
        tried = (seen.rows[:, column] == rows[:, [column]]).sum(axis=1)
        differs = rows[:, column] != best[column]
        counts = np.where(differs, np.minimum(counts, tried), counts)
    return counts


def _feasible_rates(seen: Observations) -> Array:
    return np.where(seen.feasible, seen.rates, 0.0)
