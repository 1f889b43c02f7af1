"""How the next configuration is chosen: Optuna's samplers, kept from repeating themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import (
    BaseSampler,
    GPSampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import FrozenTrial, TrialState

from autotune.config import TrainingConfig
from autotune.knobs.base import Value
from autotune.space import SearchSpace

AUTO = "auto"
"""The name of the sampler that is taken where nobody asks for another."""


class FirstSampler(BaseSampler):
    """Always each knob's first value; kept from repeating itself, it goes through all others."""

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Nothing is sampled jointly."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing."""
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The first value."""
        assert isinstance(param_distribution, CategoricalDistribution)
        return param_distribution.choices[0]


SAMPLERS: Mapping[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed, constant_liar=True),  # where several work
    "gp": lambda seed: GPSampler(seed=seed, warn_independent_sampling=False),
    "random": lambda seed: RandomSampler(seed=seed),
    "qmc": lambda seed: QMCSampler(seed=seed, warn_asynchronous_seeding=False),
    "nsga2": lambda seed: NSGAIISampler(seed=seed),
    "grid": lambda _: FirstSampler(),
}
"""Optuna's samplers by the names that `--sampler` takes, each from a seed."""


def sampler_named(name: str, seed: int) -> BaseSampler:
    """One of `SAMPLERS`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return SAMPLERS[name](seed)


def config_of(params: Mapping[str, Value], space: SearchSpace) -> TrainingConfig:
    """The configuration that Optuna's parameters stand for, frozen knobs included."""
    frozen = {name: values[0] for name, values in space.domains.items()}
    return TrainingConfig.of({**frozen, **params})


class NoRepeatSampler(BaseSampler):
    """Another sampler whose repeats are replaced by the nearest configuration not yet seen.

    Optuna never removes duplicates, and on a small space a sampler repeats itself often; each
    repeat would cost a trial.
    """

    def __init__(
        self,
        base: BaseSampler,
        space: SearchSpace,
        is_known: Callable[[TrainingConfig], bool],
        seed: int,
    ) -> None:
        self._base = base
        self._space = space
        self._is_known = is_known
        self._random = Random(seed)  # noqa: S311 - a tie-breaker, not a secret

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every knob with a choice, so that a proposal is one whole configuration."""
        return {name: CategoricalDistribution(v) for name, v in self._space.varied().items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The base sampler's proposal, or its nearest neighbour that is not known yet."""
        # Optuna reads it before `before_trial`, in which samplers note what they will propose.
        trial = study.get_trials(deepcopy=False)[trial.number]
        joint = self._base.infer_relative_search_space(study, trial)
        params = self._base.sample_relative(study, trial, joint)
        for name in [n for n in search_space if n not in params]:
            params[name] = self._base.sample_independent(study, trial, name, search_space[name])
        fresh = self._nearest_unknown(config_of(params, self._space))
        return params if fresh is None else {n: fresh.get(n, params[n]) for n in search_space}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The base sampler's own; only reached for parameters outside the space."""
        return self._base.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """New random numbers, as Optuna asks for in parallel workers."""
        self._base.reseed_rng()
        self._random.seed()

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Passed on."""
        self._base.before_trial(study, trial)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Passed on."""
        try:
            self._base.after_trial(study, trial, state, values)
        except RuntimeError as error:
            # Some end `Study.optimize` here when they are through; this study is not run by it.
            if "Study.stop" not in str(error):
                raise

    def _nearest_unknown(self, config: TrainingConfig) -> dict[str, Value] | None:
        """Breadth first over one-knob changes; None where the proposal itself is unknown."""
        if not self._is_known(config):
            return None
        seen, ring = {config}, [config]
        while ring:
            ring = self._next_ring(ring, seen)
            self._random.shuffle(ring)
            unknown = next((c for c in ring if not self._is_known(c)), None)
            if unknown is not None:
                return {n: v for n, v in unknown.as_dict().items() if v in self._space.domains[n]}
            seen.update(ring)
        return None

    def _next_ring(
        self, ring: list[TrainingConfig], seen: set[TrainingConfig]
    ) -> list[TrainingConfig]:
        found = (n for c in ring for n in self._space.neighbours(c) if n not in seen)
        return list(dict.fromkeys(found))
