"""Optuna's samplers by the names of their classes, kept from repeating configurations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from random import Random
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.sampling.encoding import config_of, distributions_of
from autotune.values.errors import AutotuneError, UsageError

AUTO = "auto"
"""Name of the default sampler."""
SAMPLERS = (
    *("BruteForceSampler", "GPSampler", "NSGAIIISampler", "NSGAIISampler", "QMCSampler"),
    *("RandomSampler", "TPESampler"),
)
"""Optuna's samplers that a seed is enough to make, but CmaEsSampler, which unpickles what the
database holds."""


def sampler_named(name: str, seed: int) -> BaseSampler:
    """Return a new sampler of `SAMPLERS`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler: BaseSampler = getattr(optuna.samplers, name)(seed=seed)
        return sampler


class NoRepeatSampler(BaseSampler):
    """A wrapper that replaces a sampler's repeats by the nearest configuration not yet known.

    Optuna never removes duplicates. On a small space a sampler repeats itself often, and each
    repeat would cost a trial. Errors of the wrapped sampler become a UsageError that names it.
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
        """Return all varied knobs, so that a proposal is a whole configuration."""
        return distributions_of(self._space)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the base sampler's proposal, or its nearest neighbour that is not known yet."""
        # The given trial is older than `before_trial`, in which samplers may set its attributes.
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
        """Return the base sampler's value; only called for parameters outside the space."""
        with self._blamed():
            return self._base.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Call the base sampler's hook."""
        with self._blamed():
            self._base.before_trial(study, trial)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Call the base sampler's hook."""
        with self._blamed():
            try:
                self._base.after_trial(study, trial, state, values)
            except RuntimeError as error:
                # Some samplers call Study.stop at their end, which fails outside Study.optimize.
                if "Study.stop" not in str(error):
                    raise

    def _proposed(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the base sampler's proposal, drawn as Optuna does."""
        joint = self._base.infer_relative_search_space(study, trial)
        known = self._base.sample_relative(study, trial, joint)
        so_far = copy(trial)  # some samplers read the parameters drawn before
        so_far.params, so_far.distributions = {}, {}
        for name, distribution in search_space.items():
            if name not in known:
                known[name] = self._base.sample_independent(study, so_far, name, distribution)
            distribution.to_internal_repr(known[name])  # raises if it is none of the choices
            so_far.params[name], so_far.distributions[name] = known[name], distribution
        return so_far.params

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Turn errors of the base sampler into a UsageError that names it.

        Errors of autotune and of the storage pass unchanged.

        Raises:
            UsageError: the base sampler failed.
        """
        try:
            yield
        except (AutotuneError, SQLAlchemyError, optuna.exceptions.StorageInternalError):
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}".rstrip(".")
            raise UsageError(
                f"the sampler {type(self._base).__name__} failed: {said}. "
                "Correct it or choose another; the same search continues with what was measured."
            ) from error

    def _nearest_unknown(self, config: TrainingConfig) -> dict[str, Value] | None:
        """Return the nearest unknown configuration, breadth first over one-knob changes.

        It is None if the proposal itself is unknown, or if every configuration is known.
        """
        if not self._is_known(config):
            return None
        seen, ring = {config}, [config]
        while ring:
            found = (n for c in ring for n in self._space.neighbours(c) if n not in seen)
            ring = list(dict.fromkeys(found))
            self._random.shuffle(ring)
            unknown = next((c for c in ring if not self._is_known(c)), None)
            if unknown is not None:
                domains = self._space.domains.items()
                return {name: unknown[name] for name, values in domains if unknown[name] in values}
            seen.update(ring)
        return None
