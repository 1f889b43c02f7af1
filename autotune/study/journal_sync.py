"""Synchronise a study's journal and database: each gets what it lacks from the other.

A study measures a configuration once, so the configuration identifies a trial in both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.storage.finished_trial import finished_trial
from autotune.storage.journal import Journal
from autotune.storage.journal_lines import Line, NoteRecord, NotReadableError, TrialRecord
from autotune.storage.leases import LEASE, LIVE
from autotune.storage.trial_details import CONFIG, REASON
from autotune.study.stored_study import StoredStudy
from autotune.values.errors import StudyMismatchError, UsageError

# A trial number further ahead than this did not come from the study.
_WIDEST_GAP = 1000
_NOT_KEPT = "lost: it was never finished, and its number alone is known"


def asked(
    stored: StoredStudy, distributions: dict[str, BaseDistribution] | None = None
) -> optuna.Trial:
    """Ask Optuna for a trial; if its sampler fails or is interrupted, no trial is left running.

    Raises:
        UsageError: the sampler failed.
    """
    study = stored.study
    try:
        return study.ask(distributions)
    except (UsageError, KeyboardInterrupt, SystemExit) as error:
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if LEASE not in trial.user_attrs:  # other trials belong to a running process
                with suppress(UsageError):  # the sampler may fail again when it is told
                    stored.give_up(trial.number, str(error) or type(error).__name__)
        raise


def write_trial(stored: StoredStudy, record: TrialRecord) -> int:
    """Tell a trial to Optuna and return its number there.

    It finishes the trial that was asked for. If that does not exist or was marked as lost, a new
    one is added in one atomic step. It gets the record's number if that is free.
    """
    if (running := _running(stored.study, record)) is not None:
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # just marked by another process
            stored.finish(running, record)
            return running.number
    _fill_up(stored.study, record.number)
    return stored.add(record)


def reconcile(stored: StoredStudy, journal: Journal) -> None:
    """Add to the study what only the journal has, and to the journal what only the study has.

    Raises:
        StorageError: a line of the journal is not readable or does not fit the database.
        StudyMismatchError: another program told a trial of the study.
    """
    with journal.reading() as lines:
        sync_journal(stored, journal, lines)
    complete_journal(stored.study, journal, lines)


def complete_journal(
    study: optuna.Study, journal: Journal, lines: list[Line], *, skip_unreadable: bool = False
) -> None:
    """Add to the journal, which has these lines, what only the study has.

    With `skip_unreadable`, trials that cannot be read are left out.

    Raises:
        OSError: the journal cannot be written.
        StudyMismatchError: another program told a trial of the study.
    """
    trials = {_key(record.config) for _, record in _trials(study, lines)}
    notes = _notes(study, lines).keys()
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if CONFIG in trial.user_attrs and _key(trial.user_attrs[CONFIG]) not in trials:
            try:
                record = _as_record(trial)
            except Exception:  # a damaged database may raise anything
                if not skip_unreadable:
                    raise
                continue
            with journal.writing(study.study_name, record):
                pass
    for name, fact in study.user_attrs.items():
        if name not in notes and name not in LIVE:
            with journal.writing(study.study_name, NoteRecord(name, fact)):
                pass


def sync_journal(stored: StoredStudy, journal: Journal, lines: list[Line]) -> int:
    """Add to the study what it lacks of a journal's lines; return the number of new trials.

    A note that the study already has is kept, because notes may be written again. Only the
    journal's last line replaces one, since a crash may have kept it from the database.

    Raises:
        StorageError: a line does not fit the study's database.
    """
    study = stored.study
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    known = {_key(trial.user_attrs.get(CONFIG)) for trial in complete}
    before = len(known)
    for line, record in sorted(_trials(study, lines), key=lambda one: one[1].number):
        if _key(record.config) not in known:
            try:
                write_trial(stored, record)
            except ValueError as error:  # a parameter has other choices in the database
                raise NotReadableError(journal.path, line.number) from error
            known.add(_key(record.config))
    there = study.user_attrs
    for name, note in _notes(study, lines).items():
        if name not in there or (note is lines[-1].record and there[name] != note.fact):
            study.set_user_attr(name, note.fact)
    return len(known) - before


def _fill_up(study: optuna.Study, number: int) -> None:
    """Add failed trials in place of those never finished, until the next one gets that number."""
    missing = number - len(study.get_trials(deepcopy=False))
    if 0 < missing <= _WIDEST_GAP:
        lost = create_trial(state=TrialState.FAIL, user_attrs={REASON: _NOT_KEPT})
        study.add_trials([lost] * missing)


def _trials(study: optuna.Study, lines: Iterable[Line]) -> list[tuple[Line, TrialRecord]]:
    own = ((line, line.record) for line in lines if line.study == study.study_name)
    return [(line, record) for line, record in own if isinstance(record, TrialRecord)]


def _notes(study: optuna.Study, lines: Iterable[Line]) -> dict[str, NoteRecord]:
    """Return the last note of each name, without those about live processes."""
    own = (line.record for line in lines if line.study == study.study_name)
    notes = (record for record in own if isinstance(record, NoteRecord))
    return {record.name: record for record in notes if record.name not in LIVE}


def _running(study: optuna.Study, record: TrialRecord) -> FrozenTrial | None:
    """Return the running trial that was asked for this record, if there is one."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if trial.number == record.number and trial.user_attrs.get(CONFIG) == record.config:
            return trial
    return None


def _as_record(trial: FrozenTrial) -> TrialRecord:
    """Convert a trial that autotune told to a record.

    Raises:
        StudyMismatchError: another program told it.
    """
    told = finished_trial(trial)
    choices: dict[str, list[Any]] = {
        name: list(distribution.choices)
        for name, distribution in trial.distributions.items()
        if isinstance(distribution, CategoricalDistribution)
    }
    value, margins = trial.value, list(told.verdict.margins.values())
    attributes = {name: fact for name, fact in trial.user_attrs.items() if name not in LIVE}
    assert value is not None
    try:
        record = TrialRecord(trial.number, trial.params, choices, value, margins, attributes)
        record.as_trial()
    except ValueError as error:
        raise StudyMismatchError(
            f"trial {trial.number} of the study was not written by autotune "
            f"({type(error).__name__}). Give this search a name of its own with --study NAME."
        ) from error
    return record


def _key(config: Any) -> str:
    return json.dumps(config, sort_keys=True)
