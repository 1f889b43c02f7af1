"""The Optuna study of a search: open it, ask it for trials, tell it verdicts.

A configuration that cannot run is told as a finished trial with violated constraints, because
samplers learn nothing from failed trials. FAIL is for faults of the infrastructure and for
interruptions. An interrupted trial is queued again; one that was lost comes after the others.

A lock on the folder of an SQLite file ensures that one process writes it, so trials that are
running when it is opened are left from a dead process. On a server several processes work on a
study. Heartbeats show that a process still runs its trials, and each process reads what the others
did before it claims a trial.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from autotune.configuration.constraints import CONSTRAINTS, VALUE, Objective, Verdict
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.sampling import samplers
from autotune.sampling.encoding import config_of, distributions_of, params_of
from autotune.sampling.samplers import AUTO, NoRepeatSampler, sampler_named
from autotune.study import facts
from autotune.study import storage as storages
from autotune.study.facts import FinishedTrial, Identity, differences, finished_trial
from autotune.study.knowledge import MODE, Knowledge
from autotune.values.errors import StudyMismatchError, UsageError
from autotune.values.text import readable

INTERRUPTED = "interrupted"
"""Reason of a trial that was lost because its search was stopped; it is tried first later."""
# Size up to which all configurations of a space are checked for one that is left to measure.
_MOST_ENUMERATED = 2000
_CHOOSING_SECONDS = 2.0  # for which a process that claims a trial may choose its settings


def open_study(
    name: str, storage: str | None, space: SearchSpace, objective: Objective
) -> TuningStudy:
    """Open the study, or create it if it does not exist; in memory without a storage.

    A file is backed up once all its trials could be read.

    Raises:
        StorageError: the storage cannot be reached, is locked, full or not a database.
        StudyMismatchError: the study exists with another direction or with foreign trials.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with storages.storage_errors(storage):
        opened: BaseStorage = InMemoryStorage()
        if storage is not None:
            opened = storages.opened(storage, on_stale=_queue_again)
        try:
            study = TuningStudy(_created(name, opened, objective), opened, space)
            study.notes.check()
            if storage is not None:
                storages.back_up(storage)
            return study
        except BaseException:
            storages.disconnect(opened)
            raise


def _created(name: str, opened: BaseStorage, objective: Objective) -> optuna.Study:
    study = optuna.create_study(
        study_name=name, storage=opened, direction=objective.direction, load_if_exists=True
    )
    if study.direction != StudyDirection[objective.direction.upper()]:
        raise StudyMismatchError(f"study {name!r} has another direction than {objective.name}.")
    if study.metric_names is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(["seconds to loss" if objective.to_loss else objective.unit])
        study.set_user_attr("constraint_names", list(CONSTRAINTS))  # for readers with only Optuna
    return study


class TuningStudy:
    """An Optuna study of configurations and their verdicts, used by threads and processes."""

    def __init__(self, study: optuna.Study, storage: BaseStorage, space: SearchSpace) -> None:
        self._study = study
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self.is_shared = isinstance(storage, RDBStorage) and bool(storage.heartbeat_interval)
        """True if other processes may work on it at the same time."""
        self._lock = threading.RLock()
        attributes = storage.get_study_user_attrs(self._study_id)
        self.notes = facts.StudyFacts(attributes, study.set_user_attr)
        self._running: dict[int, TrainingConfig] = {}
        """Configurations of the trials that this process runs, by number."""
        self._elsewhere: dict[int, TrainingConfig | None] = {}
        """Those of other processes; None for one that is being chosen."""
        self._others_seen: set[int] = set()
        self._knowledge = Knowledge()
        self._seen: set[int] = set()
        self._heart: threading.Thread | None = None
        self._is_over = threading.Event()
        self.skipped_modes: frozenset[Value] = frozenset()  # compile modes not proposed for now
        self.is_affordable: Callable[[TrainingConfig], bool] = lambda _: True  # others come last
        self._gain: tuple[object, float] | None = None  # what it was computed from, and itself
        self.widened_at: int | None = None  # finished trials when the whole space was opened
        self._distributions: dict[str, BaseDistribution]
        self.narrow(space)
        for trial in study.get_trials(deepcopy=False):
            self._see(trial)

    @property
    def name(self) -> str:
        """Name of the study in Optuna."""
        return self._study.study_name

    def use_sampler(
        self, sampler: BaseSampler | str, seed: int, cost: samplers.TrialCost = samplers.alike
    ) -> None:
        """Propose with this sampler, or the one of that name; skip measured configurations."""
        if sampler == AUTO:
            oracle = samplers.Oracle(self.is_settled, self.is_worth_a_try, cost)
            self._study.sampler = samplers.SurrogateSampler(
                self._space, oracle, seed, lambda: self.widened_at is None
            )
            return
        base = sampler_named(sampler, seed) if isinstance(sampler, str) else sampler
        self._study.sampler = NoRepeatSampler(base, self._space, self.is_settled, seed)

    def narrow(self, space: SearchSpace) -> None:
        """Replace the search space by a part of it; must be called before the first trial."""
        self._space = space
        self._distributions = distributions_of(space)

    def add(
        self, config: TrainingConfig, verdict: Verdict, details: facts.TrialDetails
    ) -> FinishedTrial:
        """Add a finished trial that was not asked for, in one transaction."""
        with self._lock:
            trial = create_trial(
                params=params_of(config, self._space.varied()),
                distributions=self._distributions,
                value=self._told(verdict),
                user_attrs={facts.CONFIG: config.as_dict(), **_attributes(verdict, details)},
                system_attrs={facts.CONSTRAINTS_ATTRIBUTE: _margins(verdict)},
            )
            trial_id = self._storage.create_new_trial(self._study_id, trial)
            number = self._storage.get_trial_number_from_id(trial_id)
            self._seen.add(number)
            return self._knowledge.learn(FinishedTrial(number, config, verdict, details))

    def claim(
        self, total: int, wanted: Iterable[TrainingConfig] = ()
    ) -> tuple[int, TrainingConfig] | None:
        """Start a trial; None if finished and running ones reach `total`, or the study is closed.

        Interrupted configurations, which are queued, come first, then `wanted`, then the sampler's.
        """
        wanted = tuple(wanted)
        while True:
            with self._lock:
                self.catch_up()
                running = len(self._running) + len(self._elsewhere)
                if len(self._knowledge.finished) + running >= total or self.is_closed:
                    return None
                fresh = next(filter(self.is_worth_a_try, wanted), None)
                queued = self._trials(TrialState.WAITING)
                number, config = self.ask(None if queued else fresh)
                if not self._is_needless(number, config, total, was_queued=bool(queued)):
                    return number, config
                self.lose(number, facts.NOT_NEEDED)
                if self.exhausted():
                    return None

    def _is_needless(
        self, number: int, config: TrainingConfig, total: int, *, was_queued: bool
    ) -> bool:
        """Return True if what was asked for became known meanwhile, or others began enough trials.

        Of processes that claim at once, those with the lowest numbers go on, so that it waits until
        those before it have chosen. One that died in this moment may cost a trial.
        """
        known = self._knowledge
        if not self.is_shared:
            return was_queued and (known.is_known(config) or known.is_given_up(config))
        end = time.monotonic() + _CHOOSING_SECONDS
        while True:
            self.catch_up()
            before = [config for other, config in self._elsewhere.items() if other < number]
            if None not in before or time.monotonic() > end:
                break
            time.sleep(_CHOOSING_SECONDS / 40)
        is_full = len(known.finished) + len(self._running) - 1 + len(before) >= total
        is_known = known.is_known(config) or known.is_given_up(config) or config in before
        return is_full or is_known or self.is_closed

    def ask(self, wanted: TrainingConfig | None = None) -> tuple[int, TrainingConfig]:
        """Start a trial with `wanted` or a proposal of the sampler; return number and settings.

        Raises:
            UsageError: the sampler failed; no trial is left running.
        """
        with self._lock:
            if wanted is not None:
                self._study.enqueue_trial(params_of(wanted, self._space.varied()))
            try:
                with warnings.catch_warnings():  # that heartbeats are meant for Study.optimize
                    warnings.simplefilter("ignore")
                    trial = self._study.ask(self._distributions)
            except (UsageError, KeyboardInterrupt, SystemExit) as error:
                # On a server another process may have asked meanwhile; missing beats tell there.
                for asked in () if self.is_shared else self._trials(TrialState.RUNNING):
                    if asked.number not in self._running:
                        with suppress(UsageError):  # the sampler may fail again when it is told
                            self._fail(asked.number, str(error) or type(error).__name__)
                raise
            config = config_of(trial.params, self._space)
            number = trial.number
            self._running[number] = config
            self._beat(number)
            self._storage.set_trial_user_attr(self._id_of(number), facts.CONFIG, config.as_dict())
            return number, config

    def tell(self, number: int, verdict: Verdict, details: facts.TrialDetails) -> FinishedTrial:
        """Finish a trial, with its margins as constraints and its details as attributes.

        If another process took it for dead and it was failed, it is added as a new one.
        """
        with self._lock:
            config, trial_id = self._running[number], self._id_of(number)
            try:
                for name, value in _attributes(verdict, details).items():
                    self._storage.set_trial_user_attr(trial_id, name, value)
                self._storage.set_trial_system_attr(
                    trial_id, facts.CONSTRAINTS_ATTRIBUTE, _margins(verdict)
                )
                self._study.tell(number, self._told(verdict))
            except (UpdateFinishedTrialError, ValueError):
                if not self._storage.get_trial(trial_id).state.is_finished():
                    raise
                del self._running[number]
                return self.add(config, verdict, details)
            del self._running[number]
            self._seen.add(number)
            return self._knowledge.learn(FinishedTrial(number, config, verdict, details))

    def _told(self, verdict: Verdict) -> float:
        """Return the value for Optuna: of a time, seconds in place of their inverse."""
        value = self._knowledge.stored_value(verdict)
        return value if self._study.direction == StudyDirection.MAXIMIZE else readable(1 / value)

    def lose(self, number: int, reason: str) -> None:
        """Mark a trial as lost to a fault of the infrastructure; queue an interrupted one again.

        A second call for the same trial does nothing, even if the storage failed in the first.
        """
        with self._lock:
            config = self._running.pop(number, None)
            if config is None:
                return
            if reason not in (INTERRUPTED, facts.NOT_NEEDED):
                self._knowledge.lost[config] += 1
            self._fail(number, reason)

    def take_back(self) -> int:
        """Queue running trials of a file again, whose process has died; return their number.

        A trial that has no configuration yet is only failed.
        """
        if self.is_shared:
            return 0
        with self._lock:
            left = [t for t in self._trials(TrialState.RUNNING) if t.number not in self._running]
            for trial in left:
                self._study.tell(trial.number, state=TrialState.FAIL)
                self._see(self._study.get_trials(deepcopy=False)[trial.number])
                _queue_again(self._study, trial)
            return len(left)

    def catch_up(self) -> None:
        """Read what other processes wrote: facts, finished trials, and those that they run."""
        if not self.is_shared:
            return
        assert isinstance(self._storage, RDBStorage)
        with self._lock:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                optuna.storages.fail_stale_trials(self._study)
            self.notes.refresh(lambda: self._storage.get_study_user_attrs(self._study_id))
            self._elsewhere = {}
            for trial in self._study.get_trials(deepcopy=False):
                self._see(trial)
                if trial.state == TrialState.RUNNING and trial.number not in self._running:
                    chosen = trial.user_attrs.get(facts.CONFIG)
                    config = None if chosen is None else TrainingConfig.of(chosen)
                    self._elsewhere[trial.number] = config
            for number in self._elsewhere.keys() - self._others_seen:
                # Optuna takes no trial from a process that died before its first heartbeat.
                self._storage.record_heartbeat(self._id_of(number))
                self._others_seen.add(number)

    def others_run(self) -> bool:
        """Return True if any process still runs a trial, or is about to."""
        with self._lock:
            self.catch_up()
            return bool(self._trials(TrialState.RUNNING) if self.is_shared else self._running)

    def finished(self) -> list[FinishedTrial]:
        """Return every trial with a verdict, in order."""
        return list(self._knowledge.finished)

    def news(self) -> list[FinishedTrial]:
        """Return the trials finished since the last call, by any process."""
        with self._lock:
            return self._knowledge.news()

    def exhausted(self) -> bool:
        """Return True if every configuration is settled."""
        if self._space.size > _MOST_ENUMERATED:
            return len(self._knowledge.finished) >= self._space.size
        with self._lock:
            return all(map(self.is_settled, self._space.configurations()))

    def gain_per_second(self, cost: samplers.TrialCost) -> float:
        """Return the most that one more trial is expected to gain, per second of its cost.

        The gain is the logarithm of the rate's, over the best so far, whichever sampler proposes.
        Trials come from the first part of the space until all of it is opened.
        """
        with self._lock:
            space = self._space.first if self.widened_at is None else self._space
            known = len(self._knowledge.finished), self.skipped_modes, self.widened_at
            if self._gain is None or self._gain[0] != known:
                oracle = samplers.Oracle(self.is_settled, self.is_worth_a_try, cost)
                proposals = samplers.Proposals(space, oracle, seed=0)
                told = self._trials(TrialState.COMPLETE)
                self._gain = known, proposals.gain_per_second(told)
            return self._gain[1]

    @property
    def is_closed(self) -> bool:
        """True if no process may claim a trial any more."""
        return self.is_shared and self.notes.plan is not None and not self.notes.plan.open

    def admit(self, options: Mapping[str, Any], trials: int) -> None:
        """Let workers run trials of a study on a server, judged with these options."""
        if self.is_shared:
            self.notes.plan = facts.Plan(options, trials)

    def close(self) -> None:
        """Let no process claim a trial any more.

        A worker begins its trial and then reads this; who closes writes this and then reads which
        trials run. So one of them sees the other.
        """
        if (plan := self.notes.plan) is not None:
            self.notes.plan = replace(plan, open=False)

    def check_identity(self, identity: Mapping[str, Any]) -> None:
        """Store the identity of a new study, or compare it with the stored one.

        Raises:
            StudyMismatchError: it was made for something else; every difference is named.
        """
        known = self.notes.identity
        if known is not None and (changed := differences(known.facts, identity)):
            raise StudyMismatchError(
                f"study {self.name!r} was made for something else:\n"
                + "\n".join(changed)
                + "\nUse --new-study or --study NAME to start another study."
            )
        if known is None:
            self.notes.identity = Identity(dict(identity))

    def disconnect(self) -> None:
        """Close all connections to the storage; the study must not be used any more."""
        self._is_over.set()
        if self._heart is not None:
            self._heart.join(timeout=storages.BEAT_SECONDS)
        storages.disconnect(self._storage)

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
        runs = config in self._running.values() or config in self._elsewhere.values()
        is_skipped = config[MODE] in self.skipped_modes
        return runs or is_skipped or self._knowledge.is_known(config)

    def _trials(self, state: TrialState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=(state,))

    def _id_of(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)

    def _fail(self, number: int, reason: str) -> None:
        """Tell Optuna that a trial failed, unless another process has finished it already."""
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(self._id_of(number), facts.REASON, reason)
            failed = self._study.tell(number, state=TrialState.FAIL)
            self._see(failed)
            if reason == INTERRUPTED:
                _queue_again(self._study, failed)

    def _beat(self, number: int) -> None:
        """Record the first heartbeat of a trial on a server; a thread records the others."""
        if not self.is_shared:
            return
        assert isinstance(self._storage, RDBStorage)
        self._storage.record_heartbeat(self._id_of(number))
        if self._heart is None:
            self._heart = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)
            self._heart.start()

    def _beat_on(self) -> None:
        assert isinstance(self._storage, RDBStorage)
        while not self._is_over.wait(storages.BEAT_SECONDS):
            # Other calls report the error.
            with suppress(SQLAlchemyError, optuna.exceptions.OptunaError):
                for number in list(self._running):
                    self._storage.record_heartbeat(self._id_of(number))
            self._storage.remove_session()

    def _see(self, trial: FrozenTrial) -> None:
        """Learn from a trial that any process finished or lost."""
        if trial.number in self._seen or not trial.state.is_finished():
            return
        self._seen.add(trial.number)
        if trial.state == TrialState.COMPLETE:
            self._knowledge.learn(finished_trial(trial))
            return
        settings = trial.user_attrs.get(facts.CONFIG)
        if settings is not None and facts.REASON not in trial.user_attrs:
            self._knowledge.died[TrainingConfig.of(settings)] += 1


def _queue_again(study: optuna.Study, failed: FrozenTrial) -> None:
    """Queue the configuration of a trial that was interrupted, or whose process died."""
    if facts.CONFIG in failed.user_attrs:
        again = create_trial(
            state=TrialState.WAITING,
            params=failed.params,
            distributions=failed.distributions,
            user_attrs={facts.CONFIG: failed.user_attrs[facts.CONFIG]},
        )
        study.add_trial(again)


def _attributes(verdict: Verdict, details: facts.TrialDetails) -> dict[str, Any]:
    """Return the attributes of a finished trial besides its configuration."""
    return {VALUE: verdict.value, facts.REASON: verdict.reason, **details.as_attributes()}


def _margins(verdict: Verdict) -> list[float]:
    """Return the margins as Optuna's constraints."""
    return [verdict.margins[name] for name in CONSTRAINTS]
