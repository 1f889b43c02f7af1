"""A sampler that proposes from a part of the search space first, then from all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from autotune.configuration.search_space import SearchSpace
from autotune.study.parameters import config_of, params_of
from autotune.study.surrogate_sampler import Oracle, SurrogateSampler


class WideningSampler(BaseSampler):
    """Two surrogate samplers, of the space's first part and of all of it.

    The first part is searched as if it were the whole space. So a larger space gives no less than
    a smaller one in the time of the smaller one.
    """

    def __init__(
        self, space: SearchSpace, oracle: Oracle, seed: int, is_first: Callable[[], bool]
    ) -> None:
        """Set up both samplers; `is_first` returns True while the first part is to be proposed."""
        self._space = space
        self._is_first = is_first
        self._first = SurrogateSampler(space.first, oracle, seed)
        self._whole = SurrogateSampler(space, oracle, seed)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return all varied knobs, so that a proposal is a whole configuration."""
        return self._whole.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a proposal from the first part while its time lasts and it is not exhausted."""
        if self._is_first():
            found = self._first.sample_relative(study, trial, search_space)
            if found:
                return params_of(config_of(found, self._space.first), self._space.varied())
        return self._whole.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return any value; only called if every configuration is known."""
        return self._whole.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Reseed the random numbers, as Optuna asks for in parallel workers."""
        self._first.reseed_rng()
        self._whole.reseed_rng()


def surrogate_sampler(
    space: SearchSpace, oracle: Oracle, seed: int, is_first: Callable[[], bool]
) -> BaseSampler:
    """Return the sampler of a search space, which widens where a part of it comes first."""
    if space.beginning is None:
        return SurrogateSampler(space, oracle, seed)
    return WideningSampler(space, oracle, seed, is_first)
