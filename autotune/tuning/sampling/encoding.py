"""Configurations as rows of numbers, and what is expected of knobs before anything is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from autotune.config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.space import SearchSpace
from autotune.tuning.sampling.surrogate import Array, Indices, nominal, ordinal

# What changing a knob is expected to gain, as a logarithm, and by how much it may be otherwise:
# a judgement, which the first few trials outweigh. Batch sizes gain from the least to the largest,
# everything else by not being at its default.
_EXPECTED: Mapping[str, tuple[float, float]] = {
    "batch_size": (0.3, 0.5),
    "num_workers": (0.2, 0.5),
    "amp_dtype": (0.2, 0.4),
    "compile_mode": (0.1, 0.3),
    "num_threads": (0.0, 0.3),
    "channels_last": (0.05, 0.2),
    "pin_memory": (0.03, 0.1),
    "persistent_workers": (0.03, 0.1),
    "float32_matmul_precision": (0.03, 0.15),
    "cudnn_benchmark": (0.02, 0.1),
}
_ELSE = (0.01, 0.07)
_FEWEST_ON_A_LINE = 3


@dataclass(frozen=True)
class Encoding:
    """The knobs of a space that have a choice, each value by its position.

    A knob that means nothing (prefetch_factor without workers) has a position of its own for that.
    """

    space: SearchSpace

    @cached_property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """Of each knob, what it may hold."""
        return {
            name: tuple(dict.fromkeys((*values, KNOBS[name].idle))) if KNOBS[name].needs else values
            for name, values in self.space.varied().items()
        }

    @cached_property
    def kernels(self) -> list[Array]:
        """How alike the values of each knob are."""
        return [_kernel(values) for values in self.values.values()]

    @cached_property
    def deviations(self) -> Array:
        """By how much each knob may be expected to change the rate, as a logarithm."""
        return np.array([_EXPECTED.get(name, _ELSE)[1] for name in self.values])

    @cached_property
    def training(self) -> list[int]:
        """Columns of the knobs that may change the trained model."""
        return [at for at, name in enumerate(self.values) if KNOBS[name].effect != "exact"]

    def expected(self, rows: Indices) -> Array:
        """The logarithm of the rate as it is expected beforehand, up to a constant, (rows,)."""
        gains = [_gains(name, values) for name, values in self.values.items()]
        columns = (gain[column] for gain, column in zip(gains, rows.T, strict=True))
        return np.asarray(sum(columns, np.zeros(len(rows))))

    def doublings(self, rows: Indices, own: Indices) -> Array:
        """How often the batch size of each row doubles that of `own` (knobs,); 0 where less."""
        if "batch_size" not in self.values:
            return np.zeros(len(rows))
        sizes = np.log2([float(value or 1) for value in self.values["batch_size"]])
        column = list(self.values).index("batch_size")
        return np.asarray(np.maximum(0.0, sizes[rows[:, column]] - sizes[own[column]]))

    def rows(self, configs: Sequence[TrainingConfig]) -> Indices:
        """Configurations as rows (configs, knobs)."""
        places = [
            (name, {value: place for place, value in enumerate(values)})
            for name, values in self.values.items()
        ]
        rows = [[at[config[name]] for name, at in places] for config in configs]
        return np.array(rows, dtype=np.intp).reshape(len(configs), len(places))

    def config(self, row: Indices) -> TrainingConfig:
        """The configuration of a row (knobs,), frozen knobs included."""
        chosen = {n: v[at] for (n, v), at in zip(self.values.items(), row.tolist(), strict=True)}
        frozen = {name: values[0] for name, values in self.space.domains.items()}
        return TrainingConfig.of({**frozen, **chosen})

    def params(self, config: TrainingConfig) -> dict[str, Value]:
        """Optuna's parameters; any value stands for that of a knob that means nothing."""
        varied = self.space.varied().items()
        return {n: config[n] if config[n] in v else v[0] for n, v in varied}

    @cached_property
    def every_row(self) -> Indices:
        """All configurations, (size, knobs); for spaces of some thousands."""
        grids = np.meshgrid(*map(np.arange, self._sizes), indexing="ij")
        return np.unique(self._settled(np.stack([g.ravel() for g in grids], axis=1)), axis=0)

    def some_rows(self, count: int, random: Random) -> Indices:
        """Rows drawn knob by knob."""
        generator = np.random.default_rng(random.getrandbits(64))
        return self._settled(generator.integers(0, self._sizes, (count, len(self._sizes))))

    def neighbours(self, row: Indices) -> Indices:
        """Rows that differ from `row` (knobs,) in one setting."""
        changed = [
            np.concatenate([row[:knob], [place], row[knob + 1 :]])
            for knob, size in enumerate(self._sizes)
            for place in range(size)
            if place != row[knob]
        ]
        return self._settled(np.array(changed, dtype=np.intp).reshape(len(changed), len(row)))

    @cached_property
    def _sizes(self) -> list[int]:
        """Values of each knob that can be chosen: idle is not."""
        return [len(values) for values in self.space.varied().values()]

    def _settled(self, rows: Indices) -> Indices:
        """With each knob idle where what it needs is off, and only there."""
        names = list(self.values)
        for column, name in enumerate(names):
            needs = KNOBS[name].needs
            if needs is None:
                continue
            idle = self.values[name].index(KNOBS[name].idle)
            off = self._is_off(rows, names, needs)
            rows[off, column] = idle
            if idle >= self._sizes[column]:  # no value of the space
                rows[~off & (rows[:, column] == idle), column] = 0
        return rows.astype(np.intp)

    def _is_off(self, rows: Indices, names: list[str], needed: str) -> NDArray[np.bool_]:
        """Which rows have a knob off."""
        if needed not in names:
            return np.full(len(rows), not self.space.domains[needed][0])
        off = np.array([not value for value in self.values[needed]])
        return off[rows[:, names.index(needed)]]


def _kernel(values: Sequence[Value]) -> Array:
    numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    if len(numbers) < len(values) or len(values) < _FEWEST_ON_A_LINE:
        return nominal(len(values))
    return ordinal([math.log2(1 + number) for number in numbers])


def _gains(name: str, values: Sequence[Value]) -> Array:
    """What each value is expected to gain over doing nothing; the order they stand in is no one's.

    Larger batches gain evenly with their logarithm, other knobs by not being at their default.
    """
    gain = _EXPECTED.get(name, _ELSE)[0]
    if name == "batch_size":
        logs = np.log2([float(value or 1) for value in values])
        return np.asarray(gain * (logs - logs.min()) / max(float(np.ptp(logs)), 1.0))
    plain = (KNOBS[name].default, KNOBS[name].idle, None)
    return np.array([0.0 if value in plain else gain for value in values])
