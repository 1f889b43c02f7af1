"""Gaussian process regression over knobs, which predicts all configurations from a few trials.

The kernel is a sum over knobs and over pairs of knobs (Duvenaud, Nickisch and Rasmussen, "Additive
Gaussian Processes", 2011). On a logarithmic scale most settings add their gain independently, and
most interactions are between two of them. A trial thus informs on every configuration that shares a
setting with it; with a product kernel only on near ones. Maximising the evidence finds how
much each knob matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
"""Configurations as rows: the position of each knob's value."""

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
    """A Gaussian process with an additive kernel over knobs and pairs of knobs."""

    def __init__(self, kernels: Sequence[Array], prior: Array) -> None:
        """Take the similarity matrix of each knob's values, and the prior deviation of its effect.

        Similarities are 0 to 1; `prior` has the shape (knobs,).
        """
        self._kernels = kernels
        self._prior = prior**2

    def fit(self, trials: Indices, values: Array) -> None:
        """Fit to `trials` (n, knobs) and their `values` (n,), whose mean should be about 0."""
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
        alone = weighted.sum(axis=0)
        pairs = (alone**2 - (weighted**2).sum(axis=0)) / 2
        together = max(float((scales.knobs.sum() ** 2 - (scales.knobs**2).sum()) / 2), 1e-12)
        share = scales.pairs * float(scales.knobs.sum()) / together
        return np.asarray(_LEVEL + alone + share * pairs)


def ordinal(positions: Sequence[float], reach: float = 0.7) -> Array:
    """Return the similarity of values on a line: a Matern 1/2 kernel over their positions."""
    at = np.asarray(positions, dtype=np.float64)
    span = max(float(np.ptp(at)), 1e-12)
    return np.asarray(np.exp(-np.abs(at[:, None] - at[None, :]) / (reach * span)))


def nominal(count: int) -> Array:
    """Return the similarity of values without an order: 1 if equal, else 0."""
    return np.eye(count)


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
