"""The default sampler: what a surrogate expects to gain most, and now and then what it knows least.

Expected improvement over the best feasible trial, times the probability of being feasible, over all
configurations of the space or a sample of them. Every few trials the most uncertain promising one
is tried instead: where only a combination pays, no single step shows the way to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from autotune.config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.space import SearchSpace
from autotune.tuning.samplers import config_of
from autotune.tuning.surrogate import Array, Indices, Surrogate, nominal, ordinal

EXPLORE_EVERY = 4
"""Of so many proposals, one is what the surrogate knows least about."""
# What changing a knob is expected to gain, as a logarithm, and by how much it may be otherwise:
# a judgement, which the first few trials outweigh. Numbers gain from their first value to their
# last, words from their first to any other.
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
_MOST_CANDIDATES = 3000
_FEASIBLE, _INFEASIBLE = -1.0, 1.0
# Of an infeasible trial with every knob but one the same, a third is infeasible, too.
_CONSTRAINT_DEVIATION = 0.4
_CURIOSITY = 2.0


class SurrogateSampler(BaseSampler):
    """Gaussian process with a kernel over knobs and pairs of them; constraints are learnt, too."""

    def __init__(
        self, space: SearchSpace, is_known: Callable[[TrainingConfig], bool], seed: int
    ) -> None:
        """`is_known` tells which configurations need not be proposed any more."""
        self._code = Code(space)
        self._is_known = is_known
        self._random = Random(seed)  # noqa: S311 (draws candidates, no secret)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every knob with a choice, so that a proposal is one whole configuration."""
        return {n: CategoricalDistribution(v) for n, v in self._code.space.varied().items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The configuration that promises most, by what the study has seen."""
        told = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        candidates = self._candidates(told)
        if not candidates:
            return {}
        promise = self._promise(told, self._code.encode(candidates))
        return self._code.params(candidates[int(np.argmax(promise))])

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Where every configuration is known: any value."""
        assert isinstance(param_distribution, CategoricalDistribution)
        return self._random.choice(param_distribution.choices)

    def reseed_rng(self) -> None:
        """New random numbers, as Optuna asks for in parallel workers."""
        self._random.seed()

    def _candidates(self, told: Sequence[FrozenTrial]) -> list[TrainingConfig]:
        """What may be proposed: all that is not known, or a sample and the best's neighbours."""
        space = self._code.space
        if space.size <= _MOST_CANDIDATES:
            return [one for one in self._code.configurations if not self._is_known(one)]
        drawn = (space.sample(self._random) for _ in range(_MOST_CANDIDATES))
        best = sorted(told, key=lambda t: -(t.value or 0.0))[:3]
        near = (n for t in best for n in space.neighbours(config_of(t.params, space)))
        return [one for one in dict.fromkeys((*near, *drawn)) if not self._is_known(one)]

    def _promise(self, told: Sequence[FrozenTrial], candidates: Indices) -> Array:
        """What each candidate promises; without trials, what is expected beforehand."""
        configs = [config_of(trial.params, self._code.space) for trial in told]
        trials = self._code.encode(configs)
        feasible = self._feasible(told, trials, candidates)
        rates = np.array([_rate(trial) for trial in told])
        ran = np.flatnonzero(rates > 0)
        if not len(ran):
            return np.exp(self._code.expected(candidates)) * feasible
        logs = np.log(rates[ran])
        expected = self._code.expected(trials[ran])
        level = float(np.mean(logs - expected))
        surrogate = Surrogate(self._code.kernels, self._code.deviations)
        surrogate.fit(trials[ran], logs - expected - level)
        mean, deviation = surrogate.predict(candidates)
        mean += self._code.expected(candidates) + level
        if len(told) % EXPLORE_EVERY == 0:
            return (mean + _CURIOSITY * deviation) * feasible
        fitted, _ = surrogate.predict(trials)
        fitted += self._code.expected(trials) + level
        best = max((fitted[i] for i in ran.tolist() if _holds(told[i])), default=float(logs.max()))
        return expected_improvement(mean, deviation, best) * feasible

    def _feasible(self, told: Sequence[FrozenTrial], trials: Indices, candidates: Indices) -> Array:
        """Probability that each candidate is feasible."""
        labels = np.array([_FEASIBLE if _holds(trial) else _INFEASIBLE for trial in told])
        if not (labels > 0).any():
            return np.ones(len(candidates))
        deviations = np.full(len(self._code.deviations), _CONSTRAINT_DEVIATION)
        surrogate = Surrogate(self._code.kernels, deviations)
        surrogate.fit(trials, labels - _FEASIBLE)
        mean, deviation = surrogate.predict(candidates)
        return normal_below(-(mean + _FEASIBLE) / deviation)


@dataclass(frozen=True)
class Code:
    """Configurations of a space as rows of numbers: the position of each knob's value."""

    space: SearchSpace

    @cached_property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """Of each knob with a choice, and what it holds while it means nothing."""
        return {
            name: tuple(dict.fromkeys((*values, KNOBS[name].idle) if KNOBS[name].needs else values))
            for name, values in self.space.varied().items()
        }

    @cached_property
    def configurations(self) -> tuple[TrainingConfig, ...]:
        """All of the space."""
        return tuple(self.space.configurations())

    @cached_property
    def kernels(self) -> list[Array]:
        """How alike the values of each knob are."""
        return [_kernel(values) for values in self.values.values()]

    @cached_property
    def deviations(self) -> Array:
        """By how much each knob may be expected to change the rate, as a logarithm."""
        return np.array([_EXPECTED.get(name, _ELSE)[1] for name in self.values])

    def encode(self, configs: Sequence[TrainingConfig]) -> Indices:
        """Rows (configs, knobs)."""
        places = [
            (name, {value: place for place, value in enumerate(values)})
            for name, values in self.values.items()
        ]
        rows = [[at[config[name]] for name, at in places] for config in configs]
        return np.array(rows, dtype=np.intp).reshape(len(configs), len(places))

    def expected(self, rows: Indices) -> Array:
        """The logarithm of the rate as it is expected beforehand, up to a constant, (rows,)."""
        gains = [_gains(name, values) for name, values in self.values.items()]
        columns: Iterator[Array] = (g[c] for g, c in zip(gains, rows.T, strict=True))
        return np.asarray(sum(columns, np.zeros(len(rows))))

    def params(self, config: TrainingConfig) -> dict[str, Value]:
        """Optuna's parameters; any value stands for that of a knob that means nothing."""
        varied = self.space.varied().items()
        return {n: config[n] if config[n] in v else v[0] for n, v in varied}


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """E[max(0, X - best)] of normal variables (Mockus, 1975)."""
    z = (mean - best) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(deviation * (z * normal_below(z) + density))


def normal_below(z: Array) -> Array:
    """Probability that a standard normal variable is below each of `z`."""
    # scipy would do it, and takes longer to import than this does in a whole search.
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])


def _kernel(values: Sequence[Value]) -> Array:
    numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    if len(numbers) < len(values) or len(values) < 3:  # noqa: PLR2004 (two have no order)
        return nominal(len(values))
    return ordinal([math.log2(1 + number) for number in numbers])


def _gains(name: str, values: Sequence[Value]) -> Array:
    gain = _EXPECTED.get(name, _ELSE)[0]
    if name != "batch_size":
        return np.array([0.0, *[gain] * (len(values) - 1)])
    return np.linspace(0.0, gain, len(values))


def _rate(trial: FrozenTrial) -> float:
    """What was measured, though it may be no feasible value; 0 where nothing was."""
    measured = trial.value if _holds(trial) else trial.user_attrs.get("value")
    return float(measured or 0.0)


def _holds(trial: FrozenTrial) -> bool:
    return all(margin <= 0 for margin in trial.constraints.values())
