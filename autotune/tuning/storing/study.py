"""The Optuna study: what is asked of it and told to it.

Each trial carries its configuration whole, what became of it, and every constraint. A configuration
that cannot run is told as a finished trial with violated constraints, because samplers learn
nothing from trials that are told as failed; FAIL is kept for faults of the infrastructure.

Everything is written to the journal first. Other processes may work on the same study, as far as
its mutex says: what they run and told is taken note of whenever a trial is claimed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.config import TrainingConfig
from autotune.constraints import CONSTRAINTS, Verdict
from autotune.errors import StorageError, StudyMismatchError
from autotune.knobs.base import Value
from autotune.objectives import Objective
from autotune.space import SearchSpace
from autotune.tuning.sampling.samplers import AUTO, NoRepeatSampler, config_of, sampler_named
from autotune.tuning.sampling.surrogate_sampler import Expense, Oracle, SurrogateSampler, alike
from autotune.tuning.storing.finished import (
    RULINGS,
    FinishedTrial,
    best_feasible,
    finished_trial,
    finished_trials,
)
from autotune.tuning.storing.identity import differences, fingerprint_of
from autotune.tuning.storing.journal import Journal, NoteRecord, Record, TrialRecord
from autotune.tuning.storing.knowledge import Knowledge, params_of
from autotune.tuning.storing.leases import CLOSED, LEADER, LEASE, LIVE, lease_of
from autotune.tuning.storing.mutex import LocalMutex, Mutex
from autotune.tuning.storing.overrule import obey_rulings
from autotune.tuning.storing.retell import asked, give_up, set_attributes, write_trial

__all__ = ["FinishedTrial", "TuningStudy", "best_feasible", "finished_trial", "finished_trials"]

INTERRUPTED = "interrupted"
"""Why a trial was given up whose search was stopped, by whatever means."""
_ABANDONED = f"{INTERRUPTED}: its process is gone"
# Up to this size a space is gone through whole, to see whether anything is left to measure.
_MOST_ENUMERATED = 2000


class TuningStudy:
    """An Optuna study that asks for configurations and is told verdicts."""

    def __init__(
        self,
        study: optuna.Study,
        space: SearchSpace,
        objective: Objective,
        journal: Journal | None = None,
        mutex: Mutex | None = None,
    ) -> None:
        self._study = study
        self._objective = objective
        self._journal = journal
        self._mutex: Mutex = mutex or LocalMutex()
        self._running: dict[int, TrainingConfig] = {}
        self._elsewhere: set[TrainingConfig] = set()
        self._knowledge = Knowledge()
        self._seen: set[int] = set()
        self._fingerprint = ""
        self._distributions: dict[str, BaseDistribution]
        self.narrow(space)
        for trial in study.get_trials(deepcopy=False):
            self._see(trial)

    @property
    def name(self) -> str:
        """Optuna's name of it."""
        return self._study.study_name

    @property
    def is_shared(self) -> bool:
        """Whether other processes may work on it at the same time."""
        return self._mutex.shared

    def use_sampler(self, sampler: BaseSampler | str, seed: int, cost: Expense = alike) -> None:
        """Propose with `sampler`, or the one of that name: never what was already measured."""
        if sampler == AUTO:
            known = (self.is_settled, self.is_worth_a_try, self._knowledge.is_overruled)
            self._study.sampler = SurrogateSampler(self._space, Oracle(*known, cost), seed)
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
        with self._mutex.turn():
            return self._tell(len(self._study.get_trials(deepcopy=False)), config, verdict, details)

    def claim(
        self, total: int, wanted: Iterable[TrainingConfig] = ()
    ) -> tuple[int, TrainingConfig] | None:
        """A new trial; None where those that run make up the total, or the study is closed.

        What was interrupted comes first, then what is wanted, then what the sampler proposes.
        """
        with self._mutex.turn():
            self.catch_up()
            running = len(self._running) + len(self._elsewhere)
            if len(self._knowledge.finished) + running >= total or self.is_closed:
                return None
            first = [c for c in self._knowledge.interrupted if not self.is_settled(c)]
            fresh = filter(self.is_worth_a_try, wanted)
            return self.ask(next(iter(first), None) or next(fresh, None))

    def ask(self, wanted: TrainingConfig | None = None) -> tuple[int, TrainingConfig]:
        """The number of a new trial and its configuration: what is wanted, else the sampler's."""
        with self._mutex.turn():
            if wanted is not None:
                self._study.enqueue_trial(params_of(wanted, self._space.varied()))
            trial = asked(self._study, self._distributions)
            config = config_of(trial.params, self._space)
            told = {LEASE: self._mutex.lease.as_dict(), "config": config.as_dict()}
            set_attributes(self._study._storage, trial._trial_id, told)
            self._running[trial.number] = config
            self._knowledge.interrupted.pop(config, None)
            return trial.number, config

    def tell(self, number: int, verdict: Verdict, details: Mapping[str, Any]) -> FinishedTrial:
        """Finish a trial: its margins as constraints, its details as attributes."""
        with self._mutex.threads:
            return self._tell(number, self._running.pop(number), verdict, details)

    def lose(self, number: int, reason: str) -> None:
        """Give a trial up because of the infrastructure; the sampler may propose the same again.

        Nothing happens where that was said before, even if the storage failed then.
        """
        with self._mutex.turn():
            config = self._running.pop(number, None)
            if config is None:
                return
            if reason == INTERRUPTED:
                self._knowledge.interrupted[config] = None
            else:
                self._knowledge.lost[config] += 1
            give_up(self._study, number, reason)

    def finished(self) -> list[FinishedTrial]:
        """Every trial that was told a verdict, in order."""
        return list(self._knowledge.finished)

    def news(self) -> list[FinishedTrial]:
        """What was told since this was asked the last time, by anybody."""
        with self._mutex.threads:
            return self._knowledge.news()

    def exhausted(self) -> bool:
        """Whether no configuration is left that is worth measuring."""
        if self._space.size > _MOST_ENUMERATED:
            return len(self._knowledge.finished) >= self._space.size
        with self._mutex.turn():
            return all(map(self.is_settled, self._space.configurations()))

    def reap(self) -> int:
        """Give up the trials whose processes are gone; how many there were."""
        with self._mutex.turn():
            for _ in self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                asked(self._study)  # else it would come in place of the next one that is wanted
            self._elsewhere = set()
            reaped = 0
            for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                lease = lease_of(trial.user_attrs.get(LEASE))
                if trial.number in self._running:
                    continue
                if lease is not None and self._mutex.lives(lease):
                    self._elsewhere.add(TrainingConfig.of(trial.user_attrs["config"]))
                    continue
                give_up(self._study, trial.number, _ABANDONED)
                reaped += 1
            for trial in self._study.get_trials(deepcopy=False):
                self._see(trial)
            obey_rulings(self._study, self._knowledge)
            return reaped

    def catch_up(self) -> None:
        """Take note of what other processes run and told."""
        if self.is_shared:
            self.reap()

    def others_run(self) -> bool:
        """Whether trials run whose outcome is still to come."""
        with self._mutex.turn():
            self.catch_up()
            return bool(self._running or self._elsewhere)

    def note(self, name: str, fact: Any) -> None:
        """Keep a fact about the whole study, as JSON."""
        fact = json.loads(json.dumps(fact))
        if self._study.user_attrs.get(name) != fact:
            down = nullcontext() if name in LIVE else self._written_down(NoteRecord(name, fact))
            with down:
                self._study.set_user_attr(name, fact)

    def note_entry(self, name: str, key: str, fact: Any) -> None:
        """Keep one entry of a fact that is a mapping, whatever others add to it meanwhile."""
        with self._mutex.turn():
            self.note(name, {**self.noted(name, {}), key: fact})

    def noted(self, name: str, default: Any = None) -> Any:
        """A fact that was noted before."""
        return self._study.user_attrs.get(name, default)

    @property
    def is_closed(self) -> bool:
        """Whether nobody may claim a trial any more."""
        return self.is_shared and bool(self.noted(CLOSED, False))

    def close(self) -> None:
        """Let nobody claim a trial any more."""
        if self.is_shared:
            with self._mutex.turn():
                self.note(CLOSED, True)

    def lead(self) -> None:
        """Be the one process that measures the baseline and confirms; trials may be claimed.

        Raises:
            StorageError: another process is that.
        """
        if not self.is_shared:
            return
        with self._mutex.turn():
            leader = lease_of(self.noted(LEADER))
            if leader is not None and self._mutex.lives(leader):
                raise StorageError(
                    f"study {self.name!r} is led by {leader}. Wait for it, help it with "
                    "`autotune worker`, or give this search a name of its own with --study NAME."
                )
            self.note(LEADER, self._mutex.lease.as_dict())
            self.note(CLOSED, False)

    def differences(self, identity: Mapping[str, Any]) -> list[str]:
        """A line for each fact in which this study is of something else; none where it is new."""
        known = self.noted("identity")
        return [] if known is None else differences(known, identity)

    def check_identity(self, identity: Mapping[str, Any]) -> None:
        """Note what this study is of, or compare with what was noted.

        Raises:
            StudyMismatchError: it was made for something else; every difference is named.
        """
        if changed := self.differences(identity):
            raise StudyMismatchError(
                f"study {self.name!r} was made for something else:\n"
                + "\n".join(changed)
                + "\nGive this search a name of its own with --study NAME or --new-study, or "
                "begin it anew beside the other's trials with --force."
            )
        if self.noted("identity") is None:
            self.note("identity", dict(identity))
        self._fingerprint = fingerprint_of(identity)

    def disconnect(self) -> None:
        """Let go of the storage; the study is not to be used any more."""
        self._mutex.close()
        self._study._storage.remove_session()
        backend = getattr(self._study._storage, "_backend", None)
        if isinstance(backend, RDBStorage):
            backend.engine.dispose()

    def overrule(self, trained_as: str, margin: float, reason: str) -> None:
        """Take trials of this kind of training for infeasible, though they were told otherwise."""
        with self._mutex.turn():
            self.note_entry(RULINGS, trained_as, {"margin": margin, "reason": reason})
            obey_rulings(self._study, self._knowledge)

    def broken_modes(self) -> list[Value]:
        """Ways to compile that are left out, because they failed whatever else was set."""
        return self._knowledge.broken_modes()

    def is_worth_a_try(self, config: TrainingConfig) -> bool:
        """Whether nothing is known of `config`, and it was not lost since this process began."""
        return config not in self._knowledge.lost and not self.is_settled(config)

    def is_settled(self, config: TrainingConfig) -> bool:
        """Known, or lost so often that it is given up."""
        return self._knowledge.is_given_up(config) or self.is_known(config)

    def is_known(self, config: TrainingConfig) -> bool:
        """Measured already, running, or sure to fail by what was measured."""
        running = config in self._running.values() or config in self._elsewhere
        return running or self._knowledge.is_known(config)

    def _tell(
        self, number: int, config: TrainingConfig, verdict: Verdict, details: Mapping[str, Any]
    ) -> FinishedTrial:
        """Into the journal, then to Optuna."""
        varied = self._space.varied()
        record = TrialRecord(
            number,
            params_of(config, varied),
            {name: list(values) for name, values in varied.items()},
            self._knowledge.stored_value(verdict),
            [verdict.margins[name] for name in CONSTRAINTS],
            {
                "config": config.as_dict(),
                **json.loads(json.dumps(details)),
                "value": verdict.value,
                "reason": verdict.reason,
                "fingerprint": self._fingerprint,
            },
        )
        with self._written_down(record):
            number = write_trial(self._study, record)
        self._seen.add(number)
        return self._knowledge.learn(FinishedTrial(number, config, verdict, details))

    def _see(self, trial: FrozenTrial) -> None:
        """Learn from a trial that somebody finished or gave up."""
        if trial.number in self._seen or not trial.state.is_finished():
            return
        self._seen.add(trial.number)
        if trial.state == TrialState.COMPLETE:
            self._knowledge.learn(finished_trial(trial))
            return
        reason, settings = map(trial.user_attrs.get, ("reason", "config"))
        if settings is None or not str(reason).startswith(INTERRUPTED):
            return
        config = TrainingConfig.of(settings)
        self._knowledge.abandoned[config] += reason == _ABANDONED
        self._knowledge.interrupted[config] = None

    def _written_down(self, record: Record) -> AbstractContextManager[None]:
        return nullcontext() if self._journal is None else self._journal.writing(self.name, record)
