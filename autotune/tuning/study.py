"""The Optuna study: everything that touches Optuna is in this file.

Each trial carries its configuration whole, what became of it, and every constraint. A configuration
that cannot run is told as a finished trial with violated constraints, because samplers learn
nothing from trials that are told as failed; FAIL is kept for faults of the infrastructure.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.config import TrainingConfig
from autotune.constraints import CONSTRAINTS, Verdict
from autotune.errors import StorageError, StudyMismatchError, UsageError
from autotune.knobs.base import Value
from autotune.objectives import Objective
from autotune.space import SearchSpace
from autotune.tuning.samplers import AUTO, NoRepeatSampler, config_of, sampler_named
from autotune.tuning.storage import masked, refuse, storage_errors
from autotune.tuning.surrogate_sampler import SurrogateSampler

# An infeasible trial's stored value stays this far below the best feasible one, because the
# dashboard picks its best trial by value alone.
_BELOW_BEST = 0.97
# Optuna's samplers and the dashboard's release 0.21 both read this attribute; the dashboard does
# not read what `Trial.set_constraint` writes.
_CONSTRAINTS_ATTRIBUTE = "constraints"
# A configuration that was lost is tried again when the others are done, but not for ever.
_MOST_LOST = 1
# Up to this size a space is gone through whole, to see whether anything is left to measure.
_MOST_ENUMERATED = 2000


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """One trial as the study holds it."""

    number: int
    config: TrainingConfig
    verdict: Verdict
    details: Mapping[str, Any]
    """What `tell` was given besides: outcome, interval, memory, seconds ..."""


class TuningStudy:
    """An Optuna study that asks for configurations and is told verdicts."""

    def __init__(self, study: optuna.Study, space: SearchSpace, objective: Objective) -> None:
        self._study = study
        self._objective = objective
        self._running: dict[int, tuple[optuna.Trial, TrainingConfig]] = {}
        self._lost: Counter[TrainingConfig] = Counter()
        self._distributions: dict[str, BaseDistribution]
        self.narrow(space)
        # This process is the only writer, so what it read and told is all there is.
        self._finished: list[FinishedTrial] = []
        self._known: set[TrainingConfig] = set()
        self._smallest_oom: dict[tuple[Value, ...], int] = {}
        for trial in finished_trials(study):
            self._remember(trial)

    def use_sampler(self, sampler: BaseSampler | str, seed: int) -> None:
        """Propose with `sampler`, or the one of that name: never what was already measured."""
        if sampler == AUTO:
            self._study.sampler = SurrogateSampler(
                self._space, self.is_settled, self.is_worth_a_try, seed
            )
            return
        base = sampler_named(sampler, seed) if isinstance(sampler, str) else sampler
        self._study.sampler = NoRepeatSampler(base, self._space, self.is_known, seed)

    def narrow(self, space: SearchSpace) -> None:
        """Search only this part of the space from now on; before the first trial."""
        self._space = space
        self._distributions = {
            name: CategoricalDistribution(values) for name, values in space.varied().items()
        }

    def add(
        self, config: TrainingConfig, verdict: Verdict, details: Mapping[str, Any]
    ) -> FinishedTrial:
        """A trial that was measured without being asked for, as one step: it is there or not."""
        attributes = {**details, "value": verdict.value, "reason": verdict.reason}
        trial = create_trial(
            params=self._params(config),
            distributions=self._distributions,
            value=self._stored_value(verdict),
            user_attrs={"config": config.as_dict(), **attributes},
            system_attrs={_CONSTRAINTS_ATTRIBUTE: _in_order(verdict)},
        )
        number = len(self._study.get_trials(deepcopy=False))
        self._study.add_trial(trial)
        return self._remember(FinishedTrial(number, config, verdict, details))

    def ask(self, wanted: TrainingConfig | None = None) -> tuple[int, TrainingConfig]:
        """The number of a new trial and its configuration: what is wanted, else the sampler's."""
        if wanted is not None:
            self._study.enqueue_trial(self._params(wanted))
        trial = self._study.ask(self._distributions)
        config = config_of(trial.params, self._space)
        trial.set_user_attr("config", config.as_dict())
        self._running[trial.number] = (trial, config)
        return trial.number, config

    def tell(self, number: int, verdict: Verdict, details: Mapping[str, Any]) -> FinishedTrial:
        """Finish a trial: its margins as constraints, its details as attributes."""
        trial, config = self._running.pop(number)
        for name, detail in {**details, "value": verdict.value, "reason": verdict.reason}.items():
            trial.set_user_attr(name, detail)
        # set_constraint would be the public way, see _CONSTRAINTS_ATTRIBUTE.
        self._study._storage.set_trial_system_attr(
            trial._trial_id, _CONSTRAINTS_ATTRIBUTE, _in_order(verdict)
        )
        self._study.tell(trial, self._stored_value(verdict))
        return self._remember(FinishedTrial(number, config, verdict, details))

    def lose(self, number: int, reason: str) -> None:
        """Give a trial up because of the infrastructure; the sampler may propose the same again."""
        trial, config = self._running.pop(number)
        self._lost[config] += 1
        trial.set_user_attr("reason", reason)
        self._study.tell(trial, state=TrialState.FAIL)

    def finished(self) -> list[FinishedTrial]:
        """Every trial that was told a verdict, in order."""
        return list(self._finished)

    def exhausted(self) -> bool:
        """Whether no configuration is left that is worth measuring."""
        if self._space.size > _MOST_ENUMERATED:
            return len(self._finished) >= self._space.size
        return all(map(self.is_settled, self._space.configurations()))

    def reap(self) -> int:
        """Fail the trials that an earlier, dead process left behind; how many there were."""
        for _ in self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            self._study.ask()  # else it would come in place of the next one that is wanted
        stale = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for trial in stale:
            self._study.tell(trial.number, state=TrialState.FAIL)
        return len(stale)

    def note(self, name: str, fact: Any) -> None:
        """Keep a fact about the whole study, as JSON."""
        self._study.set_user_attr(name, fact)

    def noted(self, name: str, default: Any = None) -> Any:
        """A fact that was noted before."""
        return self._study.user_attrs.get(name, default)

    def check_identity(self, identity: Mapping[str, Any]) -> None:
        """Note what this study is of, or compare with what was noted.

        Raises:
            StudyMismatchError: it was made for something else; every difference is named.
        """
        known = self.noted("identity")
        if known is None:
            self.note("identity", dict(identity))
            return
        changed = [
            f"  {name}: {_short(known.get(name))} in the study, {_short(value)} now"
            for name, value in identity.items()
            if known.get(name) != json.loads(json.dumps(value))
        ]
        if changed:
            raise StudyMismatchError(
                f"study {self._study.study_name!r} was made for something else:\n"
                + "\n".join(changed)
                + "\nGive this search a name of its own with --study NAME."
            )

    def is_worth_a_try(self, config: TrainingConfig) -> bool:
        """Whether nothing is known of `config`, and it was not lost since this process began."""
        return config not in self._lost and not self.is_known(config)

    def is_settled(self, config: TrainingConfig) -> bool:
        """Known, or lost so often that this process gives it up."""
        return self._lost[config] > _MOST_LOST or self.is_known(config)

    def is_known(self, config: TrainingConfig) -> bool:
        """Measured already, running, or larger than what ran out of memory."""
        if config in self._known or any(config == c for _, c in self._running.values()):
            return True
        smallest = self._smallest_oom.get(_any_batch(config))
        return smallest is not None and smallest <= int(config["batch_size"] or 0)

    def _remember(self, trial: FinishedTrial) -> FinishedTrial:
        self._finished.append(trial)
        self._known.add(trial.config)
        if trial.verdict.margins["memory"] > 0:
            key, batch = _any_batch(trial.config), int(trial.config["batch_size"] or 0)
            self._smallest_oom[key] = min(batch, self._smallest_oom.get(key, batch))
        return trial

    def _params(self, config: TrainingConfig) -> dict[str, Value]:
        # An idle knob has a value outside its domain; any value stands for it.
        return {
            name: config[name] if config[name] in values else values[0]
            for name, values in self._space.varied().items()
        }

    def _stored_value(self, verdict: Verdict) -> float:
        finished = [t.verdict for t in self._finished]
        best = [v.value for v in finished if v.feasible and v.value is not None]
        if verdict.feasible and verdict.value is not None:
            return verdict.value
        worst = min((v.value for v in finished if v.value is not None), default=0.0)
        measured = worst if verdict.value is None else verdict.value
        return min(measured, _BELOW_BEST * max(best, default=measured))


def open_study(
    name: str, storage: str | None, space: SearchSpace, objective: Objective
) -> TuningStudy:
    """Create the study, or continue it where it exists; in memory without a storage.

    Raises:
        StorageError: the storage cannot be reached, is locked, full or not a database.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with storage_errors(storage):
        try:
            study = optuna.create_study(
                study_name=name,
                storage=storage,
                direction=objective.direction,
                load_if_exists=True,
            )
        except (ImportError, ValueError) as error:  # the driver of a database is not installed
            refuse(storage, error)
        if study.direction != StudyDirection[objective.direction.upper()]:
            raise StudyMismatchError(f"study {name!r} has another direction than {objective.name}.")
        if "constraint_names" not in study.user_attrs:
            _set_metric_name(study, objective.unit)
            study.set_user_attr("constraint_names", list(CONSTRAINTS))
    return TuningStudy(study, space, objective)


def read_study(storage: str) -> list[FinishedTrial]:
    """Every finished trial of the largest study that a storage holds.

    Raises:
        StorageError, UsageError: it cannot be read, or holds no study of autotune's.
    """
    with storage_errors(storage):
        studies = [
            optuna.load_study(study_name=name, storage=storage)
            for name in optuna.get_all_study_names(storage)
        ]
    largest = max(studies, key=lambda study: len(_complete(study)), default=None)
    if largest is None or not _complete(largest):
        raise StorageError(f"{masked(storage)} holds no study with finished trials.")
    try:
        return finished_trials(largest)
    except StudyMismatchError as error:
        raise UsageError(f"{masked(storage)} holds no study of autotune's.") from error


def finished_trials(study: optuna.Study) -> list[FinishedTrial]:
    """Every trial of a study of autotune's that was told a verdict, in order."""
    return [finished_trial(trial) for trial in _complete(study)]


def _complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _in_order(verdict: Verdict) -> list[float]:
    return [verdict.margins[name] for name in CONSTRAINTS]


def finished_trial(trial: FrozenTrial) -> FinishedTrial:
    """A trial that this program told; what anyone else wrote into a database is data, no more.

    Raises:
        StudyMismatchError: someone else told it.
    """
    attributes = trial.user_attrs
    try:
        margins = {name: float(m) for name, m in zip(CONSTRAINTS, _margins(trial), strict=True)}
        value, reason = attributes["value"], str(attributes["reason"])
        verdict = Verdict(None if value is None else float(value), margins, reason)
        if not all(map(math.isfinite, (*margins.values(), verdict.value or 0.0))):
            raise ValueError("a number is not finite")
        config = TrainingConfig.of(dict(attributes["config"]))
    except (KeyError, ValueError, TypeError, AttributeError, UsageError) as error:
        raise StudyMismatchError(
            f"trial {trial.number} of the study was not told by autotune ({error}). "
            "Give this search a name of its own with --study NAME."
        ) from error
    return FinishedTrial(trial.number, config, verdict, attributes)


def _margins(trial: FrozenTrial) -> list[float]:
    return list(trial.constraints.values())


def _any_batch(config: TrainingConfig) -> tuple[Value, ...]:
    """What two configurations share that differ in their batch size alone."""
    return tuple(value for name, value in config.as_dict().items() if name != "batch_size")


def _set_metric_name(study: optuna.Study, unit: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([unit])


def _short(fact: Any) -> str:
    text = json.dumps(fact)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004


def best_feasible(trials: Iterable[FinishedTrial]) -> FinishedTrial | None:
    """The feasible trial with the highest value."""
    feasible = [t for t in trials if t.verdict.feasible and t.verdict.value is not None]
    return max(feasible, key=lambda t: t.verdict.value or 0.0, default=None)
