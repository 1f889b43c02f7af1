"""The default sampler: what a surrogate expects to gain most, and now and then what it knows least.

Expected improvement over the best feasible trial, times the probability of being feasible, over all
configurations of the space; in a large one over a sample, and from its best uphill. Every few
trials what is uncertain and may be good is tried instead: where only a combination pays, no single
step shows the way to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from autotune.config import TrainingConfig
from autotune.space import SearchSpace
from autotune.tuning.sampling.encoding import Encoding
from autotune.tuning.sampling.promise import Promise, Seen, best_first
from autotune.tuning.sampling.samplers import config_of
from autotune.tuning.sampling.surrogate import Array, Indices

EXPLORE_EVERY = 4
"""Of so many proposals, one is what the surrogate knows least about."""
_MOST_ENUMERATED = 3000
_SAMPLED = 1000
_BEST_FEW = 3


class SurrogateSampler(BaseSampler):
    """Gaussian process with a kernel over knobs and pairs of them; constraints are learnt, too."""

    def __init__(
        self,
        space: SearchSpace,
        is_known: Callable[[TrainingConfig], bool],
        is_preferred: Callable[[TrainingConfig], bool],
        is_overruled: Callable[[int, Mapping[str, Any]], bool],
        seed: int,
    ) -> None:
        """`is_known` tells what need not be proposed any more, `is_preferred` what comes first.

        `is_overruled` tells by the number and attributes of a trial whether it is feasible no
        longer.
        """
        self._encoding = Encoding(space)
        self._is_known = is_known
        self._is_preferred = is_preferred
        self._is_overruled = is_overruled
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
        promise = Promise(self._encoding, seen)
        explores = (len(told) + len(running)) % EXPLORE_EVERY == 0
        found = self._best_unknown(promise.upper_bound if explores else promise.improvement, seen)
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
        lie = float(np.median([rate for rate in rates if rate] or [0.0]))
        return Seen(
            self._encoding.rows(configs),
            np.array(rates + [lie] * len(running)),
            [self._is_feasible(trial) for trial in told] + [True] * len(running),
        )

    def _is_feasible(self, trial: FrozenTrial) -> bool:
        return _holds(trial) and not self._is_overruled(trial.number, trial.user_attrs)

    def _best_unknown(self, worth: Callable[[Indices], Array], seen: Seen) -> TrainingConfig | None:
        """Of the rows that are looked at, the one that promises most and is not known."""
        if self._encoding.space.size <= _MOST_ENUMERATED:
            return self._first(self._encoding.every_row, worth)
        best = np.argsort(-seen.rates)[:_BEST_FEW]
        near = [self._encoding.neighbours(row) for row in seen.rows[best]]
        drawn = self._encoding.some_rows(_SAMPLED, self._random)
        return self._first(self._uphill(np.concatenate([*near, drawn]), worth), worth)

    def _uphill(self, rows: Indices, worth: Callable[[Indices], Array]) -> Indices:
        """The rows, and all that are passed from the best of them to the top, knob by knob."""
        passed, height = [rows], -np.inf
        while True:
            promises = worth(passed[-1])
            best = int(np.argmax(promises))
            if promises[best] <= height:
                return np.concatenate(passed)
            height = promises[best]
            passed.append(self._encoding.neighbours(passed[-1][best]))

    def _first(self, rows: Indices, worth: Callable[[Indices], Array]) -> TrainingConfig | None:
        """The most promising that is unknown and preferred; where none is, that is unknown."""
        second = None
        for place in best_first(worth(rows)):
            config = self._encoding.config(rows[place])
            if self._is_known(config):
                continue
            if self._is_preferred(config):
                return config
            second = second or config
        return second


def _rate(trial: FrozenTrial) -> float:
    """What was measured, though it may be no feasible value; 0 where nothing was."""
    measured = trial.value if _holds(trial) else trial.user_attrs.get("value")
    return float(measured or 0.0)


def _holds(trial: FrozenTrial) -> bool:
    return all(margin <= 0 for margin in trial.constraints.values())
