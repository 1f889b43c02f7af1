"""Encoding of configurations as rows of numbers, with a prior on the effect of each knob.

Optuna's parameters are another form of a configuration: see `config_of` and `params_of`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution

from autotune.configuration.search_space import SearchSpace, nearest
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig, check_settings
from autotune.knobs import KNOBS, knob_named
from autotune.knobs.base import Value
from autotune.knobs.compile import GRAPHS

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
"""Configurations as rows: the position of each knob's value."""

# Prior gain of changing each knob, as a logarithm, and its deviation: a judgement, which the first
# few trials outweigh. Batch sizes gain by each doubling where the diagnosis tells nothing of them,
# other knobs by not being at their default.
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
    # They cost time at an equal batch; the deviation leaves room for shapes that they suit.
    "compile_dynamic": (-0.03, 0.1),
    "compile_scope": (-0.03, 0.1),
    "sdpa_backend": (-0.03, 0.15),
    "activation_checkpointing": (-0.2, 0.15),
    "activation_memory_budget": (-0.1, 0.15),
    # They pay on few machines: after the others.
    "in_order": (-0.03, 0.1),
    "cpu_allocator": (-0.03, 0.1),
    "ddp_comm_dtype": (0.03, 0.2),
    "gradient_as_bucket_view": (0.02, 0.07),
    "ddp_bucket_mb": (0.0, 0.07),
    "env.PYTORCH_ALLOC_CONF": (0.01, 0.07),
    "env.CUDA_DEVICE_MAX_CONNECTIONS": (0.0, 0.05),
}
_ELSE = (0.01, 0.07)
# Prior gain of half precision in the kernels of a GPU, as a logarithm: they take half as long.
_HALF_ON_GPU = math.log(2)
# Knobs that make kernels faster, but do not launch fewer of them.
_OF_KERNELS = ("amp_dtype", "float32_matmul_precision", "channels_last", "cudnn_benchmark")
# Doublings of the batch size that have its prior gain, however many the space has.
_DOUBLINGS = 5
# Share of a step that several threads divide, by Amdahl's law, where arithmetic takes most of it:
# so one of two threads has 0.7 of the rate (0.6 to 0.75 in recorded tables).
_PARALLEL = 0.6
# A knob of the user's own may do much or nothing, but the space offers it for a reason.
_OWN = (0.0, 0.2)
_FEWEST_ON_A_LINE = 3


@dataclass(frozen=True)
class Encoding:
    """The knobs of a space that have a choice, with each value encoded by its position.

    A knob may be idle, as prefetch_factor is without workers. It then has a position of its own.
    """

    space: SearchSpace

    @cached_property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """The values of each knob by position, with the idle value last if it is none of them."""
        return {
            name: tuple(dict.fromkeys((*values, knob.idle))) if knob.needs else values
            for name, values in self.space.varied().items()
            for knob in [knob_named(name)]
        }

    @cached_property
    def kernels(self) -> list[Array]:
        """Similarity matrix of the values of each knob, 0 to 1."""
        return [_kernel(values) for values in self.values.values()]

    @cached_property
    def deviations(self) -> Array:
        """Prior deviation of each knob's effect on the logarithm of the rate, shape (knobs,)."""
        return np.array([_expected(name)[1] for name in self.values])

    @cached_property
    def training(self) -> list[int]:
        """Columns of the knobs that may change the trained model."""
        return [at for at, name in enumerate(self.values) if self.space.effect(name) != "exact"]

    def expected(self, rows: Indices) -> Array:
        """Return the prior mean of the log rate of each row, up to a constant, shape (rows,)."""
        gains = {
            name: self._gains(name, values)[column]
            for (name, values), column in zip(self.values.items(), rows.T, strict=True)
        }
        if self.space.launch_seconds is not None:
            if "amp_dtype" in gains:
                gains["amp_dtype"] = self._half_on_gpu(rows, gains["amp_dtype"])
            if "channels_last" in gains:  # kernels in full precision have them in any order
                half = [dtype is not None for dtype in self._settings("amp_dtype", rows)]
                gains["channels_last"] = np.where(half, gains["channels_last"], 0.0)
        total = np.asarray(sum(gains.values(), np.zeros(len(rows))))
        launch = self.space.launch_seconds
        return total if launch is None else total - self._wait_for_launches(rows, gains, launch)

    def _half_on_gpu(self, rows: Indices, usual: Array) -> Array:
        """Return the prior gain of half precision in each row, given the `usual` one (rows,).

        Kernels of convolutions take half as long if the channels are last, and hardly less if not.
        """
        suits = np.ones(len(rows), dtype=bool)
        if "channels_last" in self.values:
            suits = np.array(self._settings("channels_last", rows), dtype=bool)
        return np.where(suits & (usual > 0), _HALF_ON_GPU, usual)

    def _wait_for_launches(
        self, rows: Indices, gains: Mapping[str, Array], launch_seconds: float
    ) -> Array:
        """Return the log of the time of launching over that of computing, at least 0, (rows,).

        On a GPU a step takes as long as its kernels or as launching them, whichever is longer.
        Faster kernels therefore gain only with larger batches or CUDA graphs.
        """
        rates, sizes = self.space.batch_rates, self._settings("batch_size", rows)
        if not rates.keys() >= set(sizes):
            return np.zeros(len(rows))
        kernels = sum((gains[name] for name in _OF_KERNELS if name in gains), np.zeros(len(rows)))
        computing = np.log([rates[size] for size in sizes]) + kernels
        launching = np.log([float(size or 1) / launch_seconds for size in sizes])
        has_graphs = [mode in GRAPHS for mode in self._settings("compile_mode", rows)]
        return np.where(has_graphs, 0.0, np.maximum(0.0, computing - launching))

    def _settings(self, name: str, rows: Indices) -> list[Value]:
        """Return the value of a knob in each row, varied or not."""
        if name not in self.values:
            return [self.space.domains[name][0]] * len(rows)
        column = list(self.values).index(name)
        return [self.values[name][place] for place in rows[:, column]]

    def doublings(self, rows: Indices, own: Indices) -> Array:
        """Return log2 of each row's effective batch over that of `own` (knobs,), at least 0."""
        if self.space.effective_batch is not None:
            return np.zeros(len(rows))
        doublings = sum(self.doublings_of(name, rows, own) for name in BATCH_KNOBS)
        return np.asarray(np.maximum(0.0, doublings))

    def doublings_of(self, name: str, rows: Indices, own: Indices) -> Array:
        """Return log2 of each row's value of a knob over that of `own`; 0 if it has no choice."""
        if name not in self.values:
            return np.zeros(len(rows))
        column = list(self.values).index(name)
        sizes = np.log2([float(value or 1) for value in self.values[name]])
        return np.asarray(sizes[rows[:, column]] - sizes[own[column]])

    def rows(self, configs: Sequence[TrainingConfig]) -> Indices:
        """Encode configurations as rows, shape (configs, knobs).

        The baseline's batch size may lie outside of the space; the nearest one stands for it.
        """
        places = [
            (name, {value: place for place, value in enumerate(values)})
            for name, values in self.values.items()
        ]
        rows = [[at[nearest(config[name], list(at))] for name, at in places] for config in configs]
        return np.array(rows, dtype=np.intp).reshape(len(configs), len(places))

    def config(self, row: Indices) -> TrainingConfig:
        """Decode a row (knobs,) into a configuration, frozen knobs included."""
        chosen = {n: v[at] for (n, v), at in zip(self.values.items(), row.tolist(), strict=True)}
        return self.space.config(chosen)

    @cached_property
    def every_row(self) -> Indices:
        """All configurations, shape (size, knobs); for spaces of up to some thousands."""
        grids = np.meshgrid(*map(np.arange, self._sizes), indexing="ij")
        return np.unique(self._settled(np.stack([g.ravel() for g in grids], axis=1)), axis=0)

    def some_rows(self, count: int, random: Random) -> Indices:
        """Draw `count` rows uniformly, knob by knob."""
        generator = np.random.default_rng(random.getrandbits(64))
        return self._settled(generator.integers(0, self._sizes, (count, len(self._sizes))))

    def neighbours(self, row: Indices) -> Indices:
        """Return the rows that differ from `row` (knobs,) in one setting."""
        changed = [
            np.concatenate([row[:knob], [place], row[knob + 1 :]])
            for knob, size in enumerate(self._sizes)
            for place in range(size)
            if place != row[knob]
        ]
        return self._settled(np.array(changed, dtype=np.intp).reshape(len(changed), len(row)))

    def _gains(self, name: str, values: Sequence[Value]) -> Array:
        """Return the prior gain of each value as a logarithm, whatever the order of the values.

        Batch sizes gain as the diagnosis shows, or linearly with their logarithm. Threads gain by
        Amdahl's law (1967) where the diagnosis says so, other knobs by leaving their default.
        """
        gain, rates = _expected(name)[0], self.space.batch_rates
        if name == "batch_size" and rates.keys() >= set(values):
            return np.log([rates[value] for value in values])
        if name == "batch_size":
            logs = np.log2([float(value or 1) for value in values])
            return np.asarray(gain / _DOUBLINGS * (logs - logs.min()))
        if name == "num_threads":
            most = self.space.paying_threads
            counts = np.array([min(most, int(value or most)) for value in values])
            return np.asarray(-np.log(1 - _PARALLEL + _PARALLEL / counts))
        plain = (knob_named(name).default, knob_named(name).idle, None)
        return np.array([0.0 if value in plain else gain for value in values])

    @cached_property
    def _sizes(self) -> list[int]:
        """Number of values of each knob that can be chosen, without idle."""
        return [len(values) for values in self.space.varied().values()]

    def _settled(self, rows: Indices) -> Indices:
        """Return the rows with a knob idle exactly where the knob that it needs is off.

        `rows` is changed in place.
        """
        for column, name in enumerate(self.values):
            needs = knob_named(name).needs
            if needs is None:
                continue
            idle = self.values[name].index(knob_named(name).idle)
            off = np.array([not value for value in self._settings(needs, rows)], dtype=bool)
            rows[off, column] = idle
            if idle >= self._sizes[column]:  # idle is no value of the space itself
                rows[~off & (rows[:, column] == idle), column] = 0
        return rows.astype(np.intp)


def _expected(name: str) -> tuple[float, float]:
    return _EXPECTED.get(name, _ELSE if name in KNOBS else _OWN)


def _kernel(values: Sequence[Value]) -> Array:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values) or len(values) < _FEWEST_ON_A_LINE or min(numbers) < 0:
        return nominal(len(values))
    return ordinal([math.log2(1 + number) for number in numbers])


def ordinal(positions: Sequence[float], length: float = 0.7) -> Array:
    """Return the similarity of values on a line: a Matern 1/2 kernel over their positions."""
    at = np.asarray(positions, dtype=np.float64)
    span = max(float(np.ptp(at)), 1e-12)
    return np.asarray(np.exp(-np.abs(at[:, None] - at[None, :]) / (length * span)))


def nominal(count: int) -> Array:
    """Return the similarity of values without an order: 1 if equal, else 0."""
    return np.eye(count)


def distributions_of(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions of the knobs that vary."""
    return {name: CategoricalDistribution(values) for name, values in space.varied().items()}


def config_of(params: Mapping[str, Value], space: SearchSpace) -> TrainingConfig:
    """Return the configuration for Optuna's parameters, frozen knobs included.

    Raises:
        UsageError: parameters of a study that are no settings.
    """
    check_settings(params)
    return space.config(params)


def params_of(config: TrainingConfig, varied: Mapping[str, tuple[Value, ...]]) -> dict[str, Value]:
    """Return Optuna's parameters for a configuration.

    An idle knob has a value outside its domain; the first value of the domain stands for it.
    """
    return {
        name: config[name] if config[name] in values else values[0]
        for name, values in varied.items()
    }
