"""Effect of each setting on the objective, estimated from all trials.

On a logarithmic scale most settings add the same gain whatever the others are. So a Bayesian linear
regression explains the trials: one term for each value of each knob, relative to the user's value.
Its prior keeps effects that few trials show near zero. Its cost is linear in the number of trials.
Values that always occur together share one term, and no effect is claimed of any of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.configuration.training_config import TrainingConfig, with_own
from autotune.knobs import KNOBS, knob_named
from autotune.knobs.base import Value
from autotune.study.finished import FinishedTrial
from autotune.values.statistics import Interval

FEWEST_TRIALS = 4
# Standard deviations of log ratios: of an effect, of a trial's noise at first, and its least value.
_PRIOR, _NOISE, _LEAST_NOISE = 0.5, 0.1, 0.02
_FEWEST_TO_TELL_NOISE = 3
_95_PERCENT = 1.96

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of one value of a knob against the user's value, everything else equal."""

    knob: str
    own: Value
    value: Value
    ratio: float
    interval: Interval
    """95 % interval of `ratio`."""
    trials: int
    """Number of measured trials with this value."""

    @property
    def is_significant(self) -> bool:
        """Return True if the interval excludes 1, the rate of the user's value."""
        return not self.interval[0] <= 1 <= self.interval[1]


def effects_of(trials: Sequence[FinishedTrial], baseline: TrainingConfig) -> tuple[Effect, ...]:
    """Return the effects that the trials tell apart, significant ones first, by their size.

    Fewer than `FEWEST_TRIALS` measured trials give none.
    """
    measured = [trial for trial in trials if trial.verdict.value]
    groups: dict[tuple[bool, ...], list[tuple[str, Value]]] = {}
    for name, value in _tried(measured, baseline):
        having = tuple(_has(trial.config, name, value) for trial in measured)
        groups.setdefault(having, []).append((name, value))
    if len(measured) < FEWEST_TRIALS or not groups:
        return ()
    logs = np.log([float(trial.verdict.value or 1.0) for trial in measured])
    prior = _PRIOR * np.sqrt([len(group) for group in groups.values()])
    means, deviations = _fitted(np.array([*groups], float).T, logs, prior)
    found = []
    for place, (having, group) in enumerate(groups.items()):
        if len(group) == 1:
            name, value = group[0]
            mean, reach = float(means[place]), _95_PERCENT * float(deviations[place])
            interval = (math.exp(mean - reach), math.exp(mean + reach))
            own = baseline[name]
            found.append(Effect(name, own, value, math.exp(mean), interval, sum(having)))
    return tuple(sorted(found, key=lambda one: (not one.is_significant, -abs(math.log(one.ratio)))))


def _tried(
    trials: Sequence[FinishedTrial], baseline: TrainingConfig
) -> Iterator[tuple[str, Value]]:
    """Yield, for each knob whose baseline value was tried, the other values that were tried."""
    for name in with_own(KNOBS, (trial.config for trial in trials)):
        used = [t.config[name] for t in trials if _has(t.config, name, t.config[name])]
        if baseline[name] in used and not baseline.is_idle(knob_named(name)):
            yield from ((name, value) for value in dict.fromkeys(used) if value != baseline[name])


def _has(config: TrainingConfig, name: str, value: Value) -> bool:
    return config[name] == value and not config.is_idle(knob_named(name))


def _fitted(present: Array, logs: Array, prior: Array) -> tuple[Array, Array]:
    """Return posterior mean and standard deviation of each column's effect, with a free level.

    `prior` is the standard deviation of each effect before any trial. The second pass uses the
    noise estimated from the residuals of the first.
    """
    centred, values = present - present.mean(axis=0), logs - logs.mean()
    noise = _NOISE
    for _ in range(2):
        precision = centred.T @ centred / noise**2 + np.diag(1 / prior**2)
        covariance = np.linalg.inv(precision)
        means = covariance @ centred.T @ values / noise**2
        told = float(np.trace(covariance @ centred.T @ centred)) / noise**2
        free = len(values) - 1 - told
        if free < _FEWEST_TO_TELL_NOISE:
            break
        rest = values - centred @ means
        noise = max(math.sqrt(float(rest @ rest) / free), _LEAST_NOISE)
    return means, np.sqrt(np.diag(covariance))
