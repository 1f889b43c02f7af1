"""Journal and database of a study agree: each is told what it lacks.

Within one study a configuration is measured once, so it tells whether an outcome is there already.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._rdb.models import TrialModel, TrialUserAttributeModel
from optuna.storages._rdb.storage import _create_scoped_session
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.tuning.storing.journal import Journal, Line, NoteRecord, TrialRecord

# Optuna's samplers and the dashboard's release 0.21 both read this attribute; the dashboard does
# not read what `Trial.set_constraint` writes.
CONSTRAINTS_ATTRIBUTE = "constraints"


def write_trial(study: optuna.Study, record: TrialRecord) -> int:
    """Tell a trial to Optuna, and its number there.

    It finishes the trial that was asked for. Where there is none, or somebody gave it up, it
    becomes one of its own in one step: it is there or not.
    """
    running = _running(study, record)
    if running is None:
        number = len(study.get_trials(deepcopy=False))
        study.add_trial(_as_trial(record))
        return number
    storage, trial_id = study._storage, running._trial_id
    there = running.user_attrs
    new = {name: value for name, value in record.attributes.items() if name not in there}
    set_attributes(storage, trial_id, new)
    # set_constraint would be the public way, see CONSTRAINTS_ATTRIBUTE.
    storage.set_trial_system_attr(trial_id, CONSTRAINTS_ATTRIBUTE, record.constraints)
    study.tell(running.number, record.value)
    return running.number


def set_attributes(storage: BaseStorage, trial_id: int, attributes: Mapping[str, Any]) -> None:
    """Give a trial attributes that it does not have yet.

    In one transaction where there is a database: Optuna's own way takes one for each, and a trial
    has twenty, each of which waits for the disk.
    """
    backend = getattr(storage, "_backend", None)
    if not isinstance(backend, RDBStorage):
        for name, value in attributes.items():
            storage.set_trial_user_attr(trial_id, name, value)
        return
    with _create_scoped_session(backend.scoped_session) as session:
        trial = TrialModel.find_or_raise_by_id(trial_id, session)
        backend.check_trial_is_updatable(trial_id, cast(TrialState, trial.state))
        session.add_all(
            TrialUserAttributeModel(trial_id=trial_id, key=name, value_json=json.dumps(value))
            for name, value in attributes.items()
        )


def reconcile(study: optuna.Study, journal: Journal) -> int:
    """Tell the study what only the journal knows, and the journal what only the study knows.

    How many trials the study was told.
    """
    with journal.reading() as lines:
        told = retell(study, lines)
        trials = {_key(record.config) for record in _trials(study, lines)}
        notes = _notes(study, lines).keys()
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if "config" in trial.user_attrs and _key(trial.user_attrs["config"]) not in trials:
            with journal.writing(study.study_name, _as_record(trial)):
                pass
    for name, fact in study.user_attrs.items():
        if name not in notes:
            with journal.writing(study.study_name, NoteRecord(name, fact)):
                pass
    return told


def retell(study: optuna.Study, lines: list[Line]) -> int:
    """Tell the study what it lacks of a journal; how many trials that were.

    Of notes, which may be written again, what is there counts, but for the journal's last line.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    known = {_key(trial.user_attrs.get("config")) for trial in complete}
    before = len(known)
    for record in _trials(study, lines):
        if _key(record.config) not in known:
            write_trial(study, record)
            known.add(_key(record.config))
    there = study.user_attrs
    for name, note in _notes(study, lines).items():
        if name not in there or (note is lines[-1].record and there[name] != note.fact):
            study.set_user_attr(name, note.fact)
    return len(known) - before


def _trials(study: optuna.Study, lines: Iterable[Line]) -> list[TrialRecord]:
    own = (line.record for line in lines if line.study == study.study_name)
    return [record for record in own if isinstance(record, TrialRecord)]


def _notes(study: optuna.Study, lines: Iterable[Line]) -> dict[str, NoteRecord]:
    """By name; the last one counts."""
    own = (line.record for line in lines if line.study == study.study_name)
    return {record.name: record for record in own if isinstance(record, NoteRecord)}


def _running(study: optuna.Study, record: TrialRecord) -> FrozenTrial | None:
    """The trial that was asked for this record, while it is still to be told."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if trial.number == record.number and trial.user_attrs.get("config") == record.config:
            return trial
    return None


def _as_trial(record: TrialRecord) -> FrozenTrial:
    return create_trial(
        params=record.params,
        distributions={n: CategoricalDistribution(v) for n, v in record.choices.items()},
        value=record.value,
        user_attrs=record.attributes,
        system_attrs={CONSTRAINTS_ATTRIBUTE: record.constraints},
    )


def _as_record(trial: FrozenTrial) -> TrialRecord:
    choices = {
        name: list(distribution.choices)
        for name, distribution in trial.distributions.items()
        if isinstance(distribution, CategoricalDistribution)
    }
    constraints = list(trial.constraints.values())
    assert trial.value is not None
    attributes = dict(trial.user_attrs)
    return TrialRecord(trial.number, trial.params, choices, trial.value, constraints, attributes)


def _key(config: Any) -> str:
    return json.dumps(config, sort_keys=True)
