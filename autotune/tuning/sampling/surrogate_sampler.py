"""The default sampler: what a surrogate expects to gain most, for its cost and whatever it costs.

Expected improvement over the best feasible trial, times the probability of being feasible, over all
configurations of the space; in a large one over a sample, and from its best uphill. Every other
proposal divides that by what it costs, a kind of training that was never probed being dear (after
expected improvement per second; Snoek, Larochelle and Adams, 2012). Every few what is uncertain and
may be good is tried instead: where only a combination pays, no single step shows the way to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from autotune.config import TrainingConfig
from autotune.constraints import CONSTRAINTS, UNKNOWN
from autotune.space import SearchSpace
from autotune.tuning.sampling.coverage import best_row, times_tried, trials_without_gain
from autotune.tuning.sampling.encoding import Encoding
from autotune.tuning.sampling.promise import Promise, Seen, best_first
from autotune.tuning.sampling.samplers import config_of
from autotune.tuning.sampling.surrogate import Array, Indices

EXPLORE_EVERY = 4
"""Of so many proposals, one is what the surrogate knows least about."""
_PATIENCE = 10
"""Trials without a gain after which that one is what was hardly tried, beside the best."""
_MOST_ENUMERATED = 3000
_SAMPLED = 1000
_BEST_FEW = 3
SAVE_EVERY = 2
"""Of so many proposals, one is chosen whatever it costs."""
_THRIFT = 0.5
"""Power of the seconds by which an improvement is divided: 0 counts trials, 1 counts seconds."""


Worth = Callable[[Indices], Array]
Expense = Callable[[Sequence[TrainingConfig]], Sequence[float]]
"""Seconds that trials of configurations would take."""


def alike(configs: Sequence[TrainingConfig]) -> Sequence[float]:
    """Where nobody knows better, all cost as much."""
    return [1.0] * len(configs)


@dataclass(frozen=True)
class Oracle:
    """What a study tells the sampler of configurations, beside its trials."""

    is_known: Callable[[TrainingConfig], bool]
    """Whether one need not be proposed any more."""
    is_preferred: Callable[[TrainingConfig], bool]
    """Whether it comes before others."""
    is_overruled: Callable[[int, Mapping[str, Any]], bool]
    """By the number and attributes of a trial, whether it is feasible no longer."""
    seconds_of: Expense = alike


class SurrogateSampler(BaseSampler):
    """Gaussian process with a kernel over knobs and pairs of them; constraints are learnt, too."""

    def __init__(self, space: SearchSpace, oracle: Oracle, seed: int) -> None:
        self._encoding = Encoding(space)
        self._oracle = oracle
        self._random = Random(seed)  # noqa: S311 (draws candidates, no secret)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every knob with a choice, so that a proposal is one whole configuration."""
        return {n: CategoricalDistribution(v) for n, v in self._encoding.space.varied().items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The configuration that promises most, by what the study has seen."""
        told = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        running = self._running_beside(study, trial)
        seen = self._seen(told, running)
        found = self._chosen(seen, len(told) + len(running))
        return {} if found is None else self._encoding.params(found)

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

    def _chosen(self, seen: Seen, number: int) -> TrainingConfig | None:
        """By turns what gains most, what gains most for its cost, and what is known least."""
        promise = Promise(self._encoding, seen)
        if number % EXPLORE_EVERY == 0:
            stuck = trials_without_gain(seen) >= _PATIENCE
            rare = self._hardly_tried(promise, seen) if stuck else None
            return rare or self._best_unknown(promise.upper_bound, seen)
        if number % SAVE_EVERY == 0:
            return self._best_unknown(promise.improvement, seen)
        seconds: dict[bytes, float] = {}

        def improvement_for_its_cost(rows: Indices) -> Array:
            return promise.improvement(rows) / self._seconds(rows, seconds) ** _THRIFT

        return self._best_unknown(improvement_for_its_cost, seen)

    def _running_beside(self, study: optuna.Study, trial: FrozenTrial) -> list[FrozenTrial]:
        """What others measure now."""
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        whole = self._encoding.space.varied().keys()
        return [one for one in running if one.number != trial.number and whole <= one.params.keys()]

    def _seen(self, told: Sequence[FrozenTrial], running: Sequence[FrozenTrial]) -> Seen:
        """What was told; what runs counts as if it had the middle rate, a constant liar.

        Without it, everybody would be sent to the neighbours of the same promise.
        """
        configs = [config_of(trial.params, self._encoding.space) for trial in (*told, *running)]
        rates = [_rate(trial) for trial in told]
        feasible = [self._is_feasible(trial) for trial in told]
        held = [rate for rate, holds in zip(rates, feasible, strict=True) if rate and holds]
        lie = float(np.median(held or [rate for rate in rates if rate] or [0.0]))
        return Seen(
            self._encoding.rows(configs),
            np.array(rates + [lie] * len(running)),
            feasible + [True] * len(running),
            [_is_judged(trial) for trial in told] + [False] * len(running),
        )

    def _seconds(self, rows: Indices, known: dict[bytes, float]) -> Array:
        """What each row would take; those that train alike take as long, as is `known` then."""
        training = self._encoding.training
        _, first, kind_of = np.unique(
            rows[:, training], axis=0, return_index=True, return_inverse=True
        )
        keys = [rows[place, training].tobytes() for place in first]
        new = [place for place, key in zip(first, keys, strict=True) if key not in known]
        told = self._oracle.seconds_of([self._encoding.config(rows[place]) for place in new])
        known.update(zip((rows[place, training].tobytes() for place in new), told, strict=True))
        return np.array([known[key] for key in keys])[kind_of.reshape(-1)]

    def _is_feasible(self, trial: FrozenTrial) -> bool:
        return _holds(trial) and not self._oracle.is_overruled(trial.number, trial.user_attrs)

    def _best_unknown(self, worth: Worth, seen: Seen) -> TrainingConfig | None:
        """Of the rows that are looked at, the one that promises most and is not known."""
        if self._encoding.space.size <= _MOST_ENUMERATED:
            return self._first(self._encoding.every_row, worth)
        best = np.argsort(-seen.rates)[:_BEST_FEW]
        near = [self._encoding.neighbours(row) for row in seen.rows[best]]
        drawn = self._encoding.some_rows(_SAMPLED, self._random)
        return self._first(self._uphill(np.concatenate([*near, drawn]), worth), worth)

    def _hardly_tried(self, promise: Promise, seen: Seen) -> TrainingConfig | None:
        """The best with a value that was tried least; of several the one that promises most.

        What is likely infeasible counts as tried the more often.
        """
        best = best_row(seen)
        if best is None:
            return None

        def worth(rows: Indices) -> Array:
            promised = promise.upper_bound(rows)
            tried = (1 + times_tried(rows, best, seen)) / np.maximum(promise.feasible(rows), 1e-3)
            return np.asarray(promised / (1 + promised) - tried)

        return self._first(self._encoding.neighbours(best), worth)

    def _uphill(self, rows: Indices, worth: Worth) -> Indices:
        """The rows, and all that are passed from the best of them to the top, knob by knob."""
        passed, height = [rows], -np.inf
        while True:
            promises = worth(passed[-1])
            best = int(np.argmax(promises))
            if promises[best] <= height:
                return np.concatenate(passed)
            height = promises[best]
            passed.append(self._encoding.neighbours(passed[-1][best]))

    def _first(self, rows: Indices, worth: Worth) -> TrainingConfig | None:
        """The most promising that is unknown and preferred; where none is, that is unknown."""
        second = None
        for place in best_first(worth(rows)):
            config = self._encoding.config(rows[place])
            if self._oracle.is_known(config):
                continue
            if self._oracle.is_preferred(config):
                return config
            second = second or config
        return second


def _rate(trial: FrozenTrial) -> float:
    """What was measured, though it may be no feasible value; 0 where nothing was."""
    measured = trial.value if _holds(trial) else trial.user_attrs.get("value")
    return float(measured or 0.0)


def _is_judged(trial: FrozenTrial) -> bool:
    """Whether its accuracy is known, or that it does not fit."""
    margins = dict(zip(CONSTRAINTS, trial.constraints.values(), strict=False))
    return margins.get("memory", 0.0) > 0 or margins.get("accuracy", UNKNOWN) != UNKNOWN


def _holds(trial: FrozenTrial) -> bool:
    return all(margin <= 0 for margin in trial.constraints.values())
