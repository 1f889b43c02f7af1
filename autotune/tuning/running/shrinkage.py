"""What noisy timings of many configurations tell of each: the best linear prediction of its rate.

Of hundreds of configurations that were timed once, the fastest is mostly the luckiest. So a rate is
drawn towards what the configurations tell that share its settings, by as much as noise explains.
A linear mixed model of the logarithm (Henderson, 1975): an effect of each value of each knob, of
each pair of values and of the configuration alone; a drift of the machine, which timings soon after
each other share; and noise. How much each varies is what makes the timings most likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from autotune.config import TrainingConfig

Array = NDArray[np.float64]
_MOST_SWEEPS = 5


@dataclass(frozen=True)
class _Deviations:
    """By how much the logarithm of a rate varies for each reason."""

    knobs: float = 0.2
    pairs: float = 0.04
    alone: float = 0.02
    drift: float = 0.06
    noise: float = 0.06
    memory: float = 10.0
    """Timings after which a drift has lost two thirds of what it was."""


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
    """The logarithm of each timing's rate without drift and noise, and what deviation those have.

    `configs` are those of the timings, (n,) in the order in which they were made, and so are the
    logarithms of their samples per second. The same configuration has the same value everywhere.
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
    """Timings, and what each two of them share."""

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
        """Twice the negative logarithm of the likelihood, less a constant."""
        factor = np.linalg.cholesky(self._covariance(deviations))
        scaled = np.linalg.solve(factor, self._surplus)
        return float(scaled @ scaled + 2 * np.log(np.diag(factor)).sum())

    def prediction(self, deviations: _Deviations) -> Array:
        """Of each timing's configuration."""
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
    """How many settings that vary two configurations share."""
    same = np.zeros((len(configs), len(configs)))
    for name in configs[0].as_dict():
        values = [config[name] for config in configs]
        known = list(dict.fromkeys(values))
        if len(known) > 1:
            codes = np.array([known.index(value) for value in values])
            same += codes[:, None] == codes[None, :]
    return same
