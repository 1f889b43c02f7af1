"""Effect of each setting on the objective, estimated from all trials.

On a logarithmic scale most settings add the same gain whatever the others are. So a Bayesian linear
regression explains the trials: one term for each value of each knob, relative to the user's value.
Its prior keeps effects that few trials show near zero. Its cost is linear in the number of trials.
Values of several knobs that always occur together are aliased: no trial separates their effects.
They share one term, which is the product of their effects.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
_FEWEST_VALUES = 2
_95_PERCENT = 1.96

Array = NDArray[np.float64]
Column = tuple[str, Value]


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of one value of a knob against the reference value, everything else equal."""

    value: Value
    ratio: float
    interval: Interval
    """95 % interval of `ratio`."""
    trials: int
    """Number of measured trials with this value."""
    together: Mapping[str, Value]
    """Values of other knobs in exactly the same trials; they share the effect."""

    @property
    def is_significant(self) -> bool:
        """Return True if the interval excludes 1, the rate of the reference."""
        return not self.interval[0] <= 1 <= self.interval[1]


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """Effects of the values of a knob, except those listed at another knob."""

    knob: str
    reference: Value
    is_own: bool
    """True if the reference is the user's value; False if the knob is idle in their settings, so
    that a default or the most common value is the reference."""
    effects: tuple[Effect, ...]

    @property
    def spread(self) -> float:
        """Return the logarithm of the ratio of the best value's rate to the worst's."""
        ratios = [1.0, *(effect.ratio for effect in self.effects)]
        return math.log(max(ratios) / min(ratios))

    @property
    def is_significant(self) -> bool:
        """Return True if a value of the knob has a significant effect."""
        return any(effect.is_significant for effect in self.effects)

    def of(self, value: Value) -> Effect | None:
        """Return the effect of a value.

        It is None for the reference, for unmeasured values, and for values that were always tried
        together with another knob's, which has the effect.
        """
        return next((effect for effect in self.effects if effect.value == value), None)


def knob_effects(
    trials: Sequence[FinishedTrial], baseline: TrainingConfig
) -> tuple[KnobEffect, ...]:
    """Return the effects of the knobs that trials vary, significant ones first, by their spread.

    Aliased values have one effect, at the first of their knobs; a knob without any other value is
    left out. Fewer than `FEWEST_TRIALS` measured trials give none.
    """
    measured = [trial for trial in trials if trial.verdict.value]
    if len(measured) < FEWEST_TRIALS:
        return ()
    references = dict(_references(measured, baseline))
    aliased = _aliased(measured, references)
    if not aliased:
        return ()
    found: dict[str, list[Effect]] = {}
    for columns, effect in zip(aliased, _effects(measured, aliased), strict=True):
        found.setdefault(columns[0][0], []).append(effect)
    effects = (
        KnobEffect(name, references[name], not _is_idle(name, baseline), tuple(each))
        for name, each in found.items()
    )
    return tuple(sorted(effects, key=lambda one: (not one.is_significant, -one.spread)))


def _effects(
    measured: Sequence[FinishedTrial], aliased: Sequence[Sequence[Column]]
) -> Iterator[Effect]:
    """Yield the effect of each group of aliased values, named by the first of them."""
    first = [columns[0] for columns in aliased]
    present = np.array([[_has(trial.config, one) for one in first] for trial in measured], float)
    logs = np.log([float(trial.verdict.value or 1.0) for trial in measured])
    sizes = np.array([len(columns) for columns in aliased], float)
    means, deviations = _fitted(present, logs, _PRIOR * np.sqrt(sizes))
    counts = present.sum(axis=0)
    for columns, mean, deviation, count in zip(aliased, means, deviations, counts, strict=True):
        reach = _95_PERCENT * float(deviation)
        interval = (math.exp(mean - reach), math.exp(mean + reach))
        (_, value), *others = columns
        yield Effect(value, math.exp(mean), interval, int(count), dict(others))


def comes_with(trials: Sequence[FinishedTrial], name: str, value: Value) -> str | None:
    """Return the knob that a value needs, if every trial with that knob had this value.

    Then more such trials would show no effect. None if trials differ, or none is known.
    """
    used = {trial.config[name] for trial in trials if not _is_idle(name, trial.config)}
    return knob_named(name).needs if used == {value} else None


def in_order(values: set[Value]) -> tuple[Value, ...]:
    """Return values in order: null, then false, true and numbers by size, then words."""
    return tuple(
        sorted(values, key=lambda v: (v is not None, isinstance(v, str), 0 if v is None else v))
    )


def _references(
    trials: Sequence[FinishedTrial], baseline: TrainingConfig
) -> Iterator[tuple[str, Value]]:
    """Yield the knobs whose effects can be estimated, each with its reference value.

    A knob with one value wherever it is not idle cannot be separated from the knob that it needs.
    """
    for name in with_own(KNOBS, (trial.config for trial in trials)):
        used = Counter(t.config[name] for t in trials if not _is_idle(name, t.config))
        if len(used) < _FEWEST_VALUES:
            continue
        own = baseline[name] if not _is_idle(name, baseline) else knob_named(name).default
        yield name, own if own in used else used.most_common(1)[0][0]


def _aliased(
    trials: Sequence[FinishedTrial], references: Mapping[str, Value]
) -> list[list[Column]]:
    """Return each value but the references, in groups that exactly the same trials have."""
    groups: dict[tuple[bool, ...], list[Column]] = {}
    for name, reference in references.items():
        used = {trial.config[name] for trial in trials if not _is_idle(name, trial.config)}
        for value in in_order(used - {reference}):
            having = tuple(_has(trial.config, (name, value)) for trial in trials)
            groups.setdefault(having, []).append((name, value))
    return list(groups.values())


def _has(config: TrainingConfig, column: Column) -> bool:
    name, value = column
    return config[name] == value and not _is_idle(name, config)


def _is_idle(name: str, config: TrainingConfig) -> bool:
    return config.is_idle(knob_named(name))


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
