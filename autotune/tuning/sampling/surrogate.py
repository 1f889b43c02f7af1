"""What a few trials tell of all other configurations: Gaussian process regression over knobs.

The kernel is a sum over knobs and over pairs of knobs (Duvenaud, Nickisch and Rasmussen, "Additive
Gaussian Processes", 2011): on a logarithmic scale most settings add their gain whatever the others
are, and what is more than that is mostly between two of them. So a trial tells of every
configuration that shares a setting with it, where a product over all knobs would tell of near ones
only. How much each knob matters is found by maximising the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
"""Configurations as rows: for each knob the position of its value."""

# Variance of the overall level, in squares of the logarithm: nothing is known of it.
_LEVEL = 1.0
_NOISES = (0.02, 0.05, 0.15)
_PAIRS = (0.2, 1.0)
"""Variance of all pairs together, relative to that of the knobs alone."""
_FACTORS = (0.2, 5.0)
# An effect that is unlikely beforehand has to be worth this much evidence per factor of five.
_CAUTION = 0.5
_SWEEPS = 2


@dataclass(frozen=True)
class Scales:
    """What is fitted: variances, in squares of the unit of the values."""

    knobs: Array
    """Of each knob on its own."""
    pairs: float
    noise: float


class Surrogate:
    """A Gaussian process that was fitted to trials."""

    def __init__(self, kernels: Sequence[Array], prior: Array) -> None:
        """`kernels` has a matrix per knob: how alike two of its values are, 0 to 1.

        `prior` holds the effect that each knob is expected to have, as a deviation.
        """
        self._kernels = kernels
        self._prior = prior**2

    def fit(self, trials: Indices, values: Array) -> None:
        """Learn from `trials` (n, knobs) and their `values` (n,), which have a mean of about 0."""
        self._trials, self._values = trials, values
        self._parts = np.stack([k[np.ix_(c, c)] for k, c in self._columns(trials)])
        self._scales = self._best_scales()
        self._root = _root(self._covariance(self._parts, self._scales), self._scales.noise)
        self._weights = _solved(self._root, values)

    def predict(self, others: Indices) -> tuple[Array, Array]:
        """Mean and deviation for `others` (m, knobs), each (m,); without the noise of a trial."""
        columns = zip(self._kernels, others.T, self._trials.T, strict=True)
        parts = np.stack([kernel[np.ix_(a, b)] for kernel, a, b in columns])
        cross = self._covariance(parts, self._scales)
        half = np.linalg.solve(self._root, cross.T)
        own = self._covariance(np.ones((len(self._kernels), 1, 1)), self._scales)[0, 0]
        variance = np.maximum(own - (half**2).sum(axis=0), 1e-12)
        return cross @ self._weights, np.sqrt(variance)

    @property
    def noise(self) -> float:
        """Deviation of a trial from what its configuration is worth, as it was fitted."""
        return self._scales.noise

    def _columns(self, trials: Indices) -> zip[tuple[Array, Indices]]:
        return zip(self._kernels, trials.T, strict=True)

    def _best_scales(self) -> Scales:
        """Coordinate ascent from what is expected, by factors of five."""
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
        """Log evidence, less how far the scales are from what was expected."""
        root = _root(self._covariance(self._parts, scales), scales.noise)
        fit = -0.5 * np.dot(self._values, _solved(root, self._values))
        surprise = np.abs(np.log(scales.knobs / self._prior)).sum() / np.log(5.0)
        return float(fit - np.log(np.diag(root)).sum() - _CAUTION * surprise)

    @staticmethod
    def _covariance(parts: Array, scales: Scales) -> Array:
        """Of all pairs of configurations, from how alike they are in each knob (knobs, n, m)."""
        weighted = scales.knobs[:, None, None] * parts
        alone = weighted.sum(axis=0)
        pairs = (alone**2 - (weighted**2).sum(axis=0)) / 2
        together = max(float(_pairs_of(scales.knobs)), 1e-12)
        share = scales.pairs * float(scales.knobs.sum()) / together
        return np.asarray(_LEVEL + alone + share * pairs)


def ordinal(positions: Sequence[float], reach: float = 0.7) -> Array:
    """How alike values on a line are: those near each other most (Matern 1/2)."""
    at = np.asarray(positions, dtype=np.float64)
    span = max(float(np.ptp(at)), 1e-12)
    return np.asarray(np.exp(-np.abs(at[:, None] - at[None, :]) / (reach * span)))


def nominal(count: int) -> Array:
    """Values without an order: equal, or not at all alike."""
    return np.eye(count)


def _pairs_of(variances: Array) -> float:
    return float((variances.sum() ** 2 - (variances**2).sum()) / 2)


def _root(covariance: Array, noise: float) -> Array:
    """Cholesky factor of a covariance with the noise of a trial."""
    noisy = covariance + noise**2 * np.eye(len(covariance))
    return np.asarray(np.linalg.cholesky(noisy), dtype=np.float64)


def _solved(root: Array, values: Array) -> Array:
    half = np.linalg.solve(root, values)
    return np.asarray(np.linalg.solve(root.T, half), dtype=np.float64)
