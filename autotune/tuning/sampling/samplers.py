"""How the next configuration is chosen: Optuna's samplers, kept from repeating themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
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
from sqlalchemy.exc import SQLAlchemyError

from autotune.config import TrainingConfig
from autotune.errors import AutotuneError, UsageError
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
    repeat would cost a trial. What the other sampler raises becomes a UsageError that names it.
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
        with self._blamed():
            params = self._proposed(study, trial, search_space)
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
        with self._blamed():
            return self._base.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """New random numbers, as Optuna asks for in parallel workers."""
        self._base.reseed_rng()
        self._random.seed()

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Passed on."""
        with self._blamed():
            self._base.before_trial(study, trial)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Passed on."""
        with self._blamed():
            try:
                self._base.after_trial(study, trial, state, values)
            except RuntimeError as error:
                # Some end `Study.optimize` here when they are through; this study is not run by it.
                if "Study.stop" not in str(error):
                    raise

    def _proposed(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The base sampler's proposal, drawn as Optuna draws one: what is wanted is not sampled."""
        joint = self._base.infer_relative_search_space(study, trial)
        known = self._base.sample_relative(study, trial, joint) | self._wanted(trial)
        so_far = copy(trial)  # some samplers look at what was drawn before
        so_far.params, so_far.distributions = {}, {}
        for name, distribution in search_space.items():
            if name not in known:
                known[name] = self._base.sample_independent(study, so_far, name, distribution)
            distribution.to_internal_repr(known[name])  # raises where it is none of the choices
            so_far.params[name], so_far.distributions[name] = known[name], distribution
        return so_far.params

    def _wanted(self, trial: FrozenTrial) -> dict[str, Value]:
        """What the trial was enqueued with, as far as this space has it."""
        fixed, varied = trial.system_attrs.get("fixed_params", {}), self._space.varied()
        return {name: value for name, value in fixed.items() if value in varied.get(name, ())}

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Names the base sampler where it fails; a storage that fails under it speaks for itself.

        Raises:
            UsageError: it raised something.
        """
        try:
            yield
        except (AutotuneError, SQLAlchemyError, optuna.exceptions.StorageInternalError):
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}".rstrip(".")
            raise UsageError(
                f"the sampler {type(self._base).__name__} failed: {said}. "
                "Mend it or choose another; the same search continues with what was measured."
            ) from error

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
