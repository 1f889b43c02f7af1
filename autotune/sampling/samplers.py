"""Samplers: the default one, and Optuna's by the names of their classes.

The default one is a surrogate with three acquisition functions in turn. Expected improvement is
taken over the best feasible trial, times the probability of feasibility. Every other proposal
divides it by a power of the trial cost, to which unprobed training adds (after expected improvement
per second; Snoek, Larochelle and Adams, 2012). Every fourth one maximises the upper confidence
bound instead, since no single step may lead to a combination that gains. A small space is
enumerated. A large one is sampled, and searched uphill from the best of the sample.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from autotune.configuration.constraints import CONSTRAINTS, UNKNOWN, VALUE
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.acquisition import (
    RAN_OUT,
    Acquisition,
    Observations,
    best_row,
    times_tried,
    trials_without_gain,
)
from autotune.sampling.encoding import (
    Array,
    Encoding,
    Indices,
    config_of,
    distributions_of,
    params_of,
)
from autotune.values.errors import AutotuneError, UsageError

AUTO = "auto"
"""Name of the default sampler."""
SAMPLERS = (
    *("BruteForceSampler", "GPSampler", "NSGAIIISampler", "NSGAIISampler", "QMCSampler"),
    *("RandomSampler", "TPESampler"),
)
"""Samplers of Optuna's that need only a seed; CmaEsSampler unpickles what the database holds."""


def sampler_named(name: str, seed: int) -> BaseSampler:
    """Return a new sampler of `SAMPLERS`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler: BaseSampler = getattr(optuna.samplers, name)(seed=seed)
        return sampler


class _OfConfigurations(BaseSampler):
    """Base of samplers that propose whole configurations."""

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._space = space
        self._random = Random(seed)  # noqa: S311 (no secret)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return all varied knobs."""
        return distributions_of(self._space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return any value; only called if no whole configuration was proposed."""
        assert isinstance(param_distribution, CategoricalDistribution)
        return self._random.choice(param_distribution.choices)


class NoRepeatSampler(_OfConfigurations):
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
        super().__init__(space, seed)
        self._base = base
        self._is_known = is_known

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the base sampler's proposal, or its nearest neighbour that is not known yet."""
        # The given trial is older than `before_trial`, in which samplers may set its attributes.
        trial = study.get_trials(deepcopy=False)[trial.number]
        with self._blamed():
            params = self._proposed(study, trial, search_space)
        fresh = self._nearest_unknown(config_of(params, self._space))
        return params if fresh is None else params_of(fresh, self._space.varied())

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

    def _nearest_unknown(self, config: TrainingConfig) -> TrainingConfig | None:
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
                return unknown
            seen.update(ring)
        return None


EXPLORE_EVERY = 4
"""Period of exploring proposals, which maximise the upper confidence bound."""
_PATIENCE = 10
"""Trials without a gain after which exploring proposals try rarely tried values instead."""
_MOST_ENUMERATED = 3000
_SAMPLED = 1000
_BEST_FEW = 3
SAVE_EVERY = 2
"""Period of proposals that ignore the trial cost."""
_THRIFT = 0.5
"""Power of the trial cost that divides the improvement: 0 ignores seconds, 1 is per second."""


Worth = Callable[[Indices], Array]
"""Acquisition function: a value for each row, higher is better."""
TrialCost = Callable[[Sequence[TrainingConfig]], Sequence[float]]
"""Trial cost: the expected seconds of a trial of each configuration."""


def alike(configs: Sequence[TrainingConfig]) -> Sequence[float]:
    """Return the same trial cost for all configurations."""
    return [1.0] * len(configs)


@dataclass(frozen=True)
class Oracle:
    """The study's knowledge that the sampler needs besides its trials."""

    is_known: Callable[[TrainingConfig], bool]
    """True for a configuration that must not be proposed any more."""
    is_preferred: Callable[[TrainingConfig], bool]
    """True for a configuration that is proposed before others."""
    seconds_of: TrialCost = alike


class Proposals:
    """Proposals from one space."""

    def __init__(self, space: SearchSpace, oracle: Oracle, seed: int) -> None:
        self._encoding = Encoding(space)
        self._oracle = oracle
        self._random = Random(seed)  # noqa: S311 (draws candidates, no secret)

    def best(self, study: optuna.Study, trial: FrozenTrial) -> TrainingConfig | None:
        """Return the configuration with the highest acquisition value; None if all are known."""
        told = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        told = [one for one in told if self._is_within(one)]
        whole = self._encoding.space.varied().keys()
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        running = [t for t in running if t.number != trial.number and whole <= t.params.keys()]
        return self._chosen(self._seen(told, running), len(told) + len(running))

    def gain_per_second(self, told: Sequence[FrozenTrial]) -> float:
        """Return the most that a trial is expected to gain per second, as a logarithm."""
        seen = self._seen([one for one in told if self._is_within(one)], [])
        worth = self._improvement_for_its_cost(Acquisition(self._encoding, seen), power=1.0)
        found = self._best_unknown(worth, seen)
        if found is None or not self._oracle.is_preferred(found):
            return 0.0
        return float(worth(self._encoding.rows([found]))[0])

    def _chosen(self, seen: Observations, number: int) -> TrainingConfig | None:
        """Choose by exploration, improvement, or improvement for its cost, in turn."""
        acquisition = Acquisition(self._encoding, seen)
        if number % EXPLORE_EVERY == 0:
            stuck = trials_without_gain(seen) >= _PATIENCE
            rare = self._hardly_tried(acquisition, seen) if stuck else None
            return rare or self._best_unknown(acquisition.upper_bound, seen)
        if number % SAVE_EVERY == 0:
            return self._best_unknown(acquisition.improvement, seen)
        return self._best_unknown(self._improvement_for_its_cost(acquisition, _THRIFT), seen)

    def _improvement_for_its_cost(self, acquisition: Acquisition, power: float) -> Worth:
        """Return the expected improvement divided by this power of the trial cost."""
        return lambda rows: acquisition.improvement(rows) / self._seconds(rows) ** power

    def _is_within(self, trial: FrozenTrial) -> bool:
        """Return True for a trial of this space, and for the baseline's, which may lie outside."""
        config = config_of(trial.params, self._encoding.space)
        return trial.number == 0 or self._encoding.space.within(config) == config

    def _seen(self, told: Sequence[FrozenTrial], running: Sequence[FrozenTrial]) -> Observations:
        """Encode the finished and running trials; those that run get the median rate.

        Without this constant liar, parallel trials would get neighbouring configurations.
        """
        configs = [config_of(trial.params, self._encoding.space) for trial in (*told, *running)]
        rates = [_rate(trial) for trial in told]
        feasible = [all(one <= 0 for one in trial.constraints.values()) for trial in told]
        held = [rate for rate, holds in zip(rates, feasible, strict=True) if rate and holds]
        lie = float(np.median(held or [rate for rate in rates if rate] or [0.0]))
        return Observations(
            self._encoding.rows(configs),
            np.array(rates + [lie] * len(running)),
            np.array(feasible + [True] * len(running), dtype=bool),
            np.array([_is_judged(trial) for trial in told] + [False] * len(running), dtype=bool),
            np.array([_peak(trial) for trial in told] + [np.nan] * len(running)),
        )

    def _seconds(self, rows: Indices) -> Array:
        """Return the trial cost of each row, shape (rows,).

        Rows with equal values of all knobs that affect training share one cost.
        """
        training = self._encoding.training
        _, first, kind_of = np.unique(
            rows[:, training], axis=0, return_index=True, return_inverse=True
        )
        told = self._oracle.seconds_of([self._encoding.config(rows[place]) for place in first])
        return np.array(told)[kind_of.reshape(-1)]

    def _best_unknown(self, worth: Worth, seen: Observations) -> TrainingConfig | None:
        """Return the unknown configuration with the highest acquisition value.

        In a large space, it is sought among random rows and neighbours of the best trials, and
        uphill from the best of those.
        """
        if self._encoding.space.size <= _MOST_ENUMERATED:
            return self._first(self._encoding.every_row, worth)
        best = np.argsort(-seen.rates)[:_BEST_FEW]
        near = [self._encoding.neighbours(row) for row in seen.rows[best]]
        drawn = self._encoding.some_rows(_SAMPLED, self._random)
        return self._first(self._uphill(np.concatenate([*near, drawn]), worth), worth)

    def _hardly_tried(self, acquisition: Acquisition, seen: Observations) -> TrainingConfig | None:
        """Return the best configuration with its least tried value; ties go to the higher bound.

        Rows that are likely infeasible count as tried more often.
        """
        best = best_row(seen)
        if best is None:
            return None

        def worth(rows: Indices) -> Array:
            bounds = acquisition.upper_bound(rows)
            tried = (1 + times_tried(rows, best, seen)) / np.maximum(
                acquisition.feasible(rows), 1e-3
            )
            return np.asarray(bounds / (1 + bounds) - tried)

        return self._first(self._encoding.neighbours(best), worth)

    def _uphill(self, rows: Indices, worth: Worth) -> Indices:
        """Return the rows, with those passed on the way uphill from the best, knob by knob."""
        passed, height = [rows], -np.inf
        while True:
            worths = worth(passed[-1])
            best = int(np.argmax(worths))
            if worths[best] <= height:
                return np.concatenate(passed)
            height = worths[best]
            passed.append(self._encoding.neighbours(passed[-1][best]))

    def _first(self, rows: Indices, worth: Worth) -> TrainingConfig | None:
        """Return the best row that is unknown and preferred, or else the best unknown one."""
        second = None
        for place in np.argsort(-worth(rows), kind="stable"):
            config = self._encoding.config(rows[place])
            if self._oracle.is_known(config):
                continue
            if self._oracle.is_preferred(config):
                return config
            second = second or config
        return second


class SurrogateSampler(_OfConfigurations):
    """A sampler with Gaussian processes of rate and feasibility over knobs and pairs of knobs.

    The first part of a space is searched as if it were the whole space. So a larger space gives no
    less than a smaller one in the time of the smaller one.
    """

    def __init__(
        self,
        space: SearchSpace,
        oracle: Oracle,
        seed: int,
        is_first: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set up the proposals; `is_first` tells whether they come from the space's first part."""
        super().__init__(space, seed)
        self._is_first = is_first
        self._first = Proposals(space.first, oracle, seed)
        self._whole = Proposals(space, oracle, seed)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the configuration with the highest acquisition value; empty if all are known."""
        is_first = self._space.beginning is not None and self._is_first()
        found = self._first.best(study, trial) if is_first else None
        found = found or self._whole.best(study, trial)
        return {} if found is None else params_of(found, self._space.varied())


def _rate(trial: FrozenTrial) -> float:
    """Return the measured value, feasible or not; 0 if none was measured."""
    return float(trial.user_attrs.get(VALUE) or 0.0)


def _peak(trial: FrozenTrial) -> float:
    """Return the peak memory over its limit."""
    excess = _margins(trial).get("memory", UNKNOWN)
    if excess > 0 and not _rate(trial):
        return RAN_OUT
    return np.nan if excess == UNKNOWN else 1 + excess


def _is_judged(trial: FrozenTrial) -> bool:
    return _margins(trial).get("accuracy", UNKNOWN) != UNKNOWN


def _margins(trial: FrozenTrial) -> dict[str, float]:
    return dict(zip(CONSTRAINTS, trial.constraints.values(), strict=False))
