"""The Optuna study of a search: ask it for trials, tell it verdicts.

A configuration that cannot run is told as a finished trial with violated constraints, because
samplers learn nothing from failed trials. FAIL is for faults of the infrastructure only.

All trials are written to the journal first. Other processes may work on the same study if its mutex
is shared. Their trials are read whenever a trial is claimed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from autotune.configuration.constraints import CONSTRAINTS, Objective, Verdict
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.sampling.encoding import config_of, distributions_of, params_of
from autotune.sampling.samplers import AUTO, NoRepeatSampler, sampler_named
from autotune.sampling.surrogate_sampler import Oracle, SurrogateSampler, TrialCost, alike
from autotune.storage.finished_trial import (
    FinishedTrial,
    best_feasible,
    finished_trial,
    finished_trials,
)
from autotune.storage.identity import Identity, differences, fingerprint_of
from autotune.storage.journal import Journal
from autotune.storage.journal_lines import TrialRecord
from autotune.storage.leases import LEASE, lease_of
from autotune.storage.mutex import LocalMutex, Mutex
from autotune.storage.note_types import Revocation
from autotune.storage.trial_details import CONFIG, REASON, VALUE, TrialDetails
from autotune.storage.writable_notes import WritableNotes
from autotune.study.journal_sync import asked, write_trial
from autotune.study.knowledge import MODE, Knowledge
from autotune.study.revocations import amend
from autotune.study.stored_study import StoredStudy
from autotune.values.errors import StorageError, StudyMismatchError

__all__ = ["FinishedTrial", "TuningStudy", "best_feasible", "finished_trial", "finished_trials"]

INTERRUPTED = "interrupted"
"""Reason of a trial that was lost because its search was stopped."""
_ABANDONED = f"{INTERRUPTED}: its process is gone"
# Size up to which all configurations of a space are checked for one that is left to measure.
_MOST_ENUMERATED = 2000


class TuningStudy:
    """An Optuna study of configurations and their verdicts, used by threads and processes."""

    def __init__(
        self,
        stored: StoredStudy,
        space: SearchSpace,
        objective: Objective,
        journal: Journal | None = None,
        mutex: Mutex | None = None,
    ) -> None:
        self._stored = stored
        self._study = stored.study
        self._objective = objective
        self._journal = journal
        self._mutex: Mutex = mutex or LocalMutex()
        self.notes = WritableNotes(stored.study, stored.attributes, journal, self._mutex)
        self._running: dict[int, TrainingConfig] = {}
        self._elsewhere: set[TrainingConfig] = set()
        self._knowledge = Knowledge()
        self._seen: set[int] = set()
        self._fingerprint = ""
        self.skipped_modes: frozenset[Value] = frozenset()  # compile modes not proposed for now
        self.is_affordable: Callable[[TrainingConfig], bool] = lambda _: True  # others come last
        self.widened_at: int | None = None  # finished trials when the whole space was opened
        self._distributions: dict[str, BaseDistribution]
        self.narrow(space)
        for trial in self._study.get_trials(deepcopy=False):
            self._see(trial)

    @property
    def name(self) -> str:
        """Name of the study in Optuna."""
        return self._study.study_name

    @property
    def is_shared(self) -> bool:
        """True if other processes may work on it at the same time."""
        return self._mutex.shared

    def use_sampler(self, sampler: BaseSampler | str, seed: int, cost: TrialCost = alike) -> None:
        """Propose with this sampler, or the one of that name; skip measured configurations."""
        if sampler == AUTO:
            known = (self.is_settled, self.is_worth_a_try, self._knowledge.is_revoked)
            self._study.sampler = SurrogateSampler(
                self._space, Oracle(*known, cost), seed, lambda: self.widened_at is None
            )
            return
        base = sampler_named(sampler, seed) if isinstance(sampler, str) else sampler
        self._study.sampler = NoRepeatSampler(base, self._space, self.is_known, seed)

    def narrow(self, space: SearchSpace) -> None:
        """Replace the search space by a part of it; must be called before the first trial."""
        self._space = space
        self._distributions = distributions_of(space)

    def add(self, config: TrainingConfig, verdict: Verdict, details: TrialDetails) -> FinishedTrial:
        """Add a finished trial that was not asked for, in one atomic step."""
        with self._mutex.turn():
            return self._tell(len(self._study.get_trials(deepcopy=False)), config, verdict, details)

    def claim(
        self, total: int, wanted: Iterable[TrainingConfig] = ()
    ) -> tuple[int, TrainingConfig] | None:
        """Start a trial; None if finished and running ones reach `total`, or the study is closed.

        Interrupted configurations come first, then those in `wanted`, then the sampler's proposals.
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
        """Start a trial with `wanted` or a proposal of the sampler; return number and settings."""
        with self._mutex.turn():
            if wanted is not None:
                self._study.enqueue_trial(params_of(wanted, self._space.varied()))
            trial = asked(self._stored, self._distributions)
            config = config_of(trial.params, self._space)
            self._stored.start(trial.number, config.as_dict(), self._mutex.lease.as_dict())
            self._running[trial.number] = config
            self._knowledge.interrupted.pop(config, None)
            return trial.number, config

    def tell(self, number: int, verdict: Verdict, details: TrialDetails) -> FinishedTrial:
        """Finish a trial, with its margins as constraints and its details as attributes."""
        with self._mutex.threads:
            return self._tell(number, self._running.pop(number), verdict, details)

    def lose(self, number: int, reason: str) -> None:
        """Mark a trial as lost to a fault of the infrastructure; it may be proposed again.

        A second call for the same trial does nothing, even if the storage failed in the first.
        """
        with self._mutex.turn():
            config = self._running.pop(number, None)
            if config is None:
                return
            if reason == INTERRUPTED:
                self._knowledge.interrupted[config] = None
            else:
                self._knowledge.lost[config] += 1
            self._stored.give_up(number, reason)

    def finished(self) -> list[FinishedTrial]:
        """Return every trial with a verdict, in order, with revocations applied."""
        return list(self._knowledge.finished)

    def news(self) -> list[FinishedTrial]:
        """Return the trials finished since the last call, by any process."""
        with self._mutex.threads:
            return self._knowledge.news()

    def exhausted(self) -> bool:
        """Return True if no configuration is left that is worth measuring."""
        if self._space.size > _MOST_ENUMERATED:
            return len(self._knowledge.finished) >= self._space.size
        with self._mutex.turn():
            return all(map(self.is_settled, self._space.configurations()))

    def reap(self) -> int:
        """Mark trials whose processes have died as lost; return their number."""
        with self._mutex.turn():
            for _ in self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                asked(self._stored)  # else the next trial would take this queued configuration
            self._elsewhere = set()
            reaped = 0
            for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                lease = lease_of(trial.user_attrs.get(LEASE))
                if trial.number in self._running:
                    continue
                if lease is not None and self._mutex.lives(lease):
                    self._elsewhere.add(TrainingConfig.of(trial.user_attrs[CONFIG]))
                    continue
                self._stored.give_up(trial.number, _ABANDONED)
                reaped += 1
            for trial in self._study.get_trials(deepcopy=False):
                self._see(trial)
            self._knowledge.revoke(self.notes.revocations)
            return reaped

    def catch_up(self) -> None:
        """Read the trials that other processes run and have finished."""
        if self.is_shared:
            self.reap()

    def others_run(self) -> bool:
        """Return True if any process still runs a trial."""
        with self._mutex.turn():
            self.catch_up()
            return bool(self._running or self._elsewhere)

    @property
    def is_closed(self) -> bool:
        """True if no process may claim a trial any more."""
        return self.is_shared and self.notes.is_closed

    def close(self) -> None:
        """Let no process of a shared study claim a trial any more."""
        if self.is_shared:
            with self._mutex.turn():
                self.notes.is_closed = True

    def lead(self) -> None:
        """Become the one process that measures the baseline and confirms; let trials be claimed.

        Raises:
            StorageError: another process has that role.
        """
        if not self.is_shared:
            return
        with self._mutex.turn():
            leader = self.notes.leader
            if leader is not None and self._mutex.lives(leader):
                raise StorageError(
                    f"study {self.name!r} is in use by the search of {leader}. Wait for it, help "
                    "it with `autotune worker`, or give this search its own name: --study NAME."
                )
            self.notes.leader = self._mutex.lease
            self.notes.is_closed = False

    def differences(self, identity: Mapping[str, Any]) -> list[str]:
        """Return a line for each fact that differs from the study's identity; none if it is new."""
        known = self.notes.identity
        return [] if known is None else differences(known.facts, identity)

    def check_identity(self, identity: Mapping[str, Any]) -> None:
        """Store the identity of a new study, or compare it with the stored one.

        Raises:
            StudyMismatchError: it was made for something else; every difference is named.
        """
        if changed := self.differences(identity):
            raise StudyMismatchError(
                f"study {self.name!r} was made for something else:\n"
                + "\n".join(changed)
                + "\n--new-study gives this search a study of its own, as --study NAME does. "
                "--force begins anew under the old name, beside the other's trials."
            )
        if self.notes.identity is None:
            self.notes.identity = Identity(identity)
        self._fingerprint = fingerprint_of(identity)

    def disconnect(self) -> None:
        """Close all connections to the storage; the study must not be used any more.

        An SQLite file shows revocations then. If that fails, opening the study says why.
        """
        self._mutex.close()
        with suppress(Exception):  # a damaged database may raise anything
            amend(self._stored)
        self._stored.close()

    def revoke(self, training_equivalent: str, revocation: Revocation) -> None:
        """Revoke all trials of a training equivalence: they count as infeasible from now on."""
        with self._mutex.turn():
            self.notes.revoke(training_equivalent, revocation)
            self._knowledge.revoke(self.notes.revocations)

    def left_out(self) -> list[str]:
        """Return what is not tried any more, each with the reason."""
        return self._knowledge.left_out()

    def is_worth_a_try(self, config: TrainingConfig) -> bool:
        """Return True if `config` is unknown and affordable, and this process has not lost it."""
        is_new = config not in self._knowledge.lost and not self.is_settled(config)
        return is_new and self.is_affordable(config)

    def is_settled(self, config: TrainingConfig) -> bool:
        """Return True if `config` is known, or was lost too often to be tried again."""
        return self._knowledge.is_given_up(config) or self.is_known(config)

    def is_known(self, config: TrainingConfig) -> bool:
        """Return True if `config` was measured, runs, is skipped, or would certainly fail."""
        running = config in self._running.values() or config in self._elsewhere
        skipped = config[MODE] in self.skipped_modes
        return running or skipped or self._knowledge.is_known(config)

    def _tell(
        self, number: int, config: TrainingConfig, verdict: Verdict, details: TrialDetails
    ) -> FinishedTrial:
        """Write a finished trial into the journal, then tell it to Optuna."""
        varied = self._space.varied()
        record = TrialRecord(
            number,
            params_of(config, varied),
            {name: list(values) for name, values in varied.items()},
            self._knowledge.stored_value(verdict),
            [verdict.margins[name] for name in CONSTRAINTS],
            {
                CONFIG: config.as_dict(),
                **json.loads(json.dumps(details.as_attributes())),
                VALUE: verdict.value,
                REASON: verdict.reason,
                "fingerprint": self._fingerprint,
            },
        )
        journal = self._journal
        with nullcontext() if journal is None else journal.writing(self.name, record):
            number = write_trial(self._stored, record)
        self._seen.add(number)
        return self._knowledge.learn(FinishedTrial(number, config, verdict, details))

    def _see(self, trial: FrozenTrial) -> None:
        """Learn from a trial that any process finished or lost."""
        if trial.number in self._seen or not trial.state.is_finished():
            return
        self._seen.add(trial.number)
        if trial.state == TrialState.COMPLETE:
            self._knowledge.learn(finished_trial(trial))
            return
        reason, settings = map(trial.user_attrs.get, (REASON, CONFIG))
        if settings is None or not str(reason).startswith(INTERRUPTED):
            return
        config = TrainingConfig.of(settings)
        self._knowledge.abandoned[config] += reason == _ABANDONED
        self._knowledge.interrupted[config] = None
