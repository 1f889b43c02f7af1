"""What each setting does to the rate, told from all trials at once; and two settings together.

On a logarithmic scale most settings add their gain whatever the others are. So the trials are
explained by a sum of one term for each value of each knob, relative to the user's own value: linear
regression, with a prior that keeps what few trials tell near to no effect. Its cost grows with the
number of trials, no faster. The interaction of two knobs shows what was measured, nothing fitted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.config import TrainingConfig
from autotune.intervals import Interval
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.tuning.storing.study import FinishedTrial

FEWEST_TRIALS = 4
# Of an effect, and of the noise of a trial before the trials tell it; as logarithms.
_PRIOR, _NOISE, _LEAST_NOISE = 0.5, 0.1, 0.02
_FEWEST_TO_TELL_NOISE = 3
_FEWEST_VALUES = 2
_95_PERCENT = 1.96

Array = NDArray[np.float64]
Column = tuple[str, Value]


@dataclass(frozen=True, slots=True)
class Effect:
    """One value of a knob against the reference value, everything else equal."""

    value: Value
    ratio: float
    interval: Interval
    trials: int
    """With this value that were measured."""


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """What the values of a knob do."""

    knob: str
    reference: Value
    is_own: bool
    """Whether the reference is the user's own value, not what a knob that means nothing in their
    settings usually has."""
    effects: tuple[Effect, ...]

    @property
    def spread(self) -> float:
        """From the worst to the best value, as a logarithm."""
        ratios = [1.0, *(effect.ratio for effect in self.effects)]
        return math.log(max(ratios) / min(ratios))

    def of(self, value: Value) -> Effect | None:
        """The effect of a value; None where no trial had it, or it is the reference."""
        return next((effect for effect in self.effects if effect.value == value), None)


@dataclass(frozen=True, slots=True)
class Cell:
    """The trials that share a value of each of two knobs."""

    trials: int
    best: float | None
    """The fastest feasible of them; None where none was."""


@dataclass(frozen=True)
class Interaction:
    """What was measured of each combination of two knobs' values."""

    rows: str
    columns: str
    row_values: tuple[Value, ...]
    column_values: tuple[Value, ...]
    cells: Mapping[tuple[Value, Value], Cell]


def knob_effects(
    trials: Sequence[FinishedTrial], baseline: TrainingConfig
) -> tuple[KnobEffect, ...]:
    """The knobs that trials differ in, the most influential first; none where few trials tell."""
    measured = [trial for trial in trials if trial.verdict.value]
    if len(measured) < FEWEST_TRIALS:
        return ()
    references = dict(_references(measured, baseline))
    columns = _columns(measured, references)
    if not columns:
        return ()
    present = np.array([[_has(trial.config, one) for one in columns] for trial in measured], float)
    logs = np.log([float(trial.verdict.value or 1.0) for trial in measured])
    means, deviations = _fitted(present, logs)
    counts = present.sum(axis=0)
    found: dict[str, list[Effect]] = {}
    for (name, value), mean, deviation, count in zip(
        columns, means, deviations, counts, strict=True
    ):
        reach = _95_PERCENT * float(deviation)
        interval = (math.exp(mean - reach), math.exp(mean + reach))
        effect = Effect(value, math.exp(mean), interval, int(count))
        found.setdefault(name, []).append(effect)
    effects = (
        KnobEffect(name, references[name], not _is_idle(name, baseline), tuple(each))
        for name, each in found.items()
    )
    return tuple(sorted(effects, key=lambda one: -one.spread))


def interaction(trials: Sequence[FinishedTrial], rows: str, columns: str) -> Interaction:
    """The fastest feasible trial of each combination of two knobs' values."""
    grouped: dict[tuple[Value, Value], list[FinishedTrial]] = {}
    for trial in trials:
        grouped.setdefault((trial.config[rows], trial.config[columns]), []).append(trial)
    cells = {pair: Cell(len(group), _best(group)) for pair, group in grouped.items()}
    return Interaction(
        rows,
        columns,
        in_order({pair[0] for pair in grouped}),
        in_order({pair[1] for pair in grouped}),
        cells,
    )


def in_order(values: set[Value]) -> tuple[Value, ...]:
    """Nothing and false first, then numbers by size, then words."""
    return tuple(
        sorted(values, key=lambda v: (v is not None, isinstance(v, str), 0 if v is None else v))
    )


def _references(
    trials: Sequence[FinishedTrial], baseline: TrainingConfig
) -> Iterator[tuple[str, Value]]:
    """The knobs that can be told from others, each with the value to compare with.

    A knob that has one value wherever it means anything cannot be told from what it needs.
    """
    for name, knob in KNOBS.items():
        used = Counter(t.config[name] for t in trials if not _is_idle(name, t.config))
        if len(used) < _FEWEST_VALUES:
            continue
        own = baseline[name] if not _is_idle(name, baseline) else knob.default
        yield name, own if own in used else used.most_common(1)[0][0]


def _columns(trials: Sequence[FinishedTrial], references: Mapping[str, Value]) -> list[Column]:
    """Every value that some trial had and that is another than the reference."""
    columns = []
    for name, reference in references.items():
        own = [t for t in trials if not _is_idle(name, t.config)]
        values = {trial.config[name] for trial in own} - {reference}
        columns += [(name, value) for value in in_order(values)]
    return columns


def _has(config: TrainingConfig, column: Column) -> bool:
    name, value = column
    return config[name] == value and not _is_idle(name, config)


def _is_idle(name: str, config: TrainingConfig) -> bool:
    needs = KNOBS[name].needs
    return needs is not None and not config[needs]


def _best(trials: Sequence[FinishedTrial]) -> float | None:
    feasible = (t.verdict.value for t in trials if t.verdict.feasible and t.verdict.value)
    return max(feasible, default=None)


def _fitted(present: Array, logs: Array) -> tuple[Array, Array]:
    """Mean and deviation of each column's effect, the overall level left free."""
    centred, values = present - present.mean(axis=0), logs - logs.mean()
    noise = _NOISE
    for _ in range(2):
        precision = centred.T @ centred / noise**2 + np.eye(centred.shape[1]) / _PRIOR**2
        covariance = np.linalg.inv(precision)
        means = covariance @ centred.T @ values / noise**2
        told = float(np.trace(covariance @ centred.T @ centred)) / noise**2
        free = len(values) - 1 - told
        if free < _FEWEST_TO_TELL_NOISE:
            break
        rest = values - centred @ means
        noise = max(math.sqrt(float(rest @ rest) / free), _LEAST_NOISE)
    return means, np.sqrt(np.diag(covariance))
