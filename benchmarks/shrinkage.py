"""Estimate each configuration's rate from noisy timings of many: best linear unbiased prediction.

Among hundreds of configurations timed once, the fastest is mostly the luckiest. So each rate is
shrunk towards those of configurations that share its settings, by as much as noise explains.

The log rate has a linear mixed model (Henderson, 1975). Its effects belong to each value of each
knob, each pair of values and the configuration alone. Successive timings share a drift of the
machine; the rest is noise. The deviations of these effects maximise the likelihood of the timings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from autotune.configuration.training_config import TrainingConfig

Array = NDArray[np.float64]
_MOST_SWEEPS = 5


@dataclass(frozen=True)
class _Deviations:
    """Standard deviations of the effects on the logarithm of a rate."""

    knobs: float = 0.2
    pairs: float = 0.04
    alone: float = 0.02
    drift: float = 0.06
    noise: float = 0.06
    memory: float = 10.0
    """Number of timings after which the correlation of the drift has fallen to 1/e."""


_CHOICES: dict[str, tuple[float, ...]] = {
    "knobs": (0.05, 0.1, 0.2, 0.4, 0.8),
    "pairs": (0.0, 0.02, 0.04, 0.08, 0.16),
    "alone": (0.0, 0.01, 0.02, 0.04, 0.08, 0.16),
    "drift": (0.0, 0.03, 0.06, 0.09, 0.13, 0.2, 0.3),
    "noise": (0.01, 0.02, 0.04, 0.06, 0.09, 0.13, 0.2),
    "memory": (2.0, 5.0, 10.0, 30.0, 100.0),
}
assert set(_CHOICES) == {field.name for field in fields(_Deviations)}


def shrunk(configs: Sequence[TrainingConfig], log_rates: Array) -> tuple[Array, float]:
    """Predict the log rate of each timing's configuration, without drift and noise.

    Args:
        configs: configuration of each timing, (n,) in the order of measuring.
        log_rates: logarithm of each timing's samples/s, (n,).

    Returns:
        The predictions, (n,), equal for equal configurations; and the joint standard deviation of
        drift and noise.
    """
    model = _Model(configs, log_rates)
    found, before = _Deviations(), None
    for _ in range(_MOST_SWEEPS):
        if found == before:
            break
        before = found
        for name, choices in _CHOICES.items():
            found = min((replace(found, **{name: c}) for c in choices), key=model.unlikeliness)
    return model.prediction(found), math.hypot(found.drift, found.noise)


class _Model:
    """The mixed model of some timings."""

    def __init__(self, configs: Sequence[TrainingConfig], log_rates: Array) -> None:
        self._level = log_rates.mean()
        self._surplus = log_rates - self._level
        self._knobs = _shared(configs)
        self._pairs = self._knobs * (self._knobs - 1) / 2
        codes = np.array([hash(config) for config in configs])
        self._alone = (codes[:, None] == codes[None, :]).astype(float)
        places = np.arange(len(configs))
        self._apart = np.abs(places[:, None] - places[None, :])

    def unlikeliness(self, deviations: _Deviations) -> float:
        """Return twice the negative log likelihood, up to a constant."""
        factor = np.linalg.cholesky(self._covariance(deviations))
        scaled = np.linalg.solve(factor, self._surplus)
        return float(scaled @ scaled + 2 * np.log(np.diag(factor)).sum())

    def prediction(self, deviations: _Deviations) -> Array:
        """Return the predicted log rate of each timing's configuration, (n,)."""
        weights = np.linalg.solve(self._covariance(deviations), self._surplus)
        return np.asarray(self._level + self._of_configs(deviations) @ weights)

    def _covariance(self, deviations: _Deviations) -> Array:
        drift = deviations.drift**2 * np.exp(-self._apart / deviations.memory)
        noise = deviations.noise**2 * np.eye(len(self._surplus))
        return np.asarray(self._of_configs(deviations) + drift + noise)

    def _of_configs(self, deviations: _Deviations) -> Array:
        of_knobs = deviations.knobs**2 * self._knobs + deviations.pairs**2 * self._pairs
        return np.asarray(of_knobs + deviations.alone**2 * self._alone)


def _shared(configs: Sequence[TrainingConfig]) -> Array:
    """Return the number of settings that each two configurations share, (n, n).

    Settings with one value only are left out.
    """
    same = np.zeros((len(configs), len(configs)))
    for name in configs[0].as_dict():
        values = [config[name] for config in configs]
        known = list(dict.fromkeys(values))
        if len(known) > 1:
            codes = np.array([known.index(value) for value in values])
            same += codes[:, None] == codes[None, :]
    return same
