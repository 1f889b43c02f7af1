"""A study for Optuna Dashboard: trials that were revoked after they were told are infeasible.

Optuna does not change finished trials, so a revocation is a fact of the study. `Shown` applies it
whenever trials are read. `settle` writes it into an SQLite file, for programs that know nothing of
it. On a server, other processes hold the study by its number, so there it stays as it was told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from copy import copy
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.configuration.constraints import CONSTRAINTS
from autotune.study import storage
from autotune.study.facts import (
    CONSTRAINTS_ATTRIBUTE,
    REASON,
    Revocation,
    StudyFacts,
)
from autotune.study.finished import revocation_of
from autotune.study.knowledge import BELOW_BEST

# Characters that fit in a window of 1200 pixels beside the list of trials.
_WIDEST = 60
# Names of study attributes about a trial, by which Optuna Dashboard finds its notes and files.
_OF_TRIAL = re.compile(r"^(dashboard:(?:artifacts:)?)(\d+)(?=:)")


class Shown(RDBStorage):
    """A storage as the dashboard is to show it.

    Long attributes are cut: a page shows each on one line, and blocks of a measurement would make
    it ten windows wide.
    """

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return the trials, with revocations applied."""
        trials = super().get_all_trials(study_id, deepcopy)
        revocations = StudyFacts(super().get_study_user_attrs(study_id)).revocations
        shown = amended(trials, revocations)
        for trial in shown:
            trial.user_attrs = _cut(trial.user_attrs)
        return [trial for trial in shown if states is None or trial.state in states]

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Return the study's attributes."""
        return _cut(super().get_study_user_attrs(study_id))

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Return the best feasible trial.

        Raises:
            ValueError: there is none.
        """
        complete = self.get_all_trials(study_id, states=(TrialState.COMPLETE,))
        feasible = [trial for trial in complete if holds(trial)]
        if not feasible:
            raise ValueError("No trials are completed yet.")
        return max(feasible, key=lambda trial: trial.value or 0.0)


def _cut(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes, as text where they are long."""
    texts = {name: json.dumps(value) for name, value in attributes.items()}
    return {
        name: value if len(texts[name]) <= _WIDEST else f"{texts[name][:_WIDEST]}…"
        for name, value in attributes.items()
    }


def holds(trial: FrozenTrial) -> bool:
    """Return True if a trial was told as feasible."""
    return all(margin <= 0 for margin in trial.constraints.values())


def amended(trials: list[FrozenTrial], revocations: Mapping[str, Revocation]) -> list[FrozenTrial]:
    """Return copies of the trials with revocations applied, and values of infeasible ones lowered.

    The dashboard picks its best trial by value alone, so infeasible trials were told a value below
    the best at that time. That best one may be revoked now.
    """
    found = [_amended(trial, revocations) for trial in trials]
    complete = [trial for trial in found if trial.state == TrialState.COMPLETE]
    best = max((trial.value or 0.0 for trial in complete if holds(trial)), default=0.0)
    for trial in complete:
        if revocations and not holds(trial):
            trial.value = min(trial.value or 0.0, BELOW_BEST * best)
    return found


def _amended(trial: FrozenTrial, revocations: Mapping[str, Revocation]) -> FrozenTrial:
    trial = copy(trial)
    revocation = revocation_of(trial, revocations)
    if revocation is None or trial.state != TrialState.COMPLETE or not holds(trial):
        return trial
    margins = dict(zip(CONSTRAINTS, trial.constraints.values(), strict=True))
    told = list((margins | {"accuracy": revocation.margin}).values())
    trial.system_attrs = {**trial.system_attrs, CONSTRAINTS_ATTRIBUTE: told}
    trial.user_attrs = {**trial.user_attrs, REASON: revocation.reason}
    return trial


def settle(url: str, name: str) -> None:
    """Write a study anew in its SQLite file if that shows a revoked trial as feasible.

    Numbers, dates and facts stay. The file is changed in one transaction: it has the old study or
    the new one, whenever this is killed. No process may have the study open.

    Raises:
        OSError, sqlite3.Error, SQLAlchemyError, StorageInternalError: the file cannot be written.
    """
    file = storage.file_of(url)
    if file is None or not file.exists() or not _is_to_settle(url, name):
        return
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    storage.copy_database(file, beside)
    copied = storage.opened(f"sqlite:///{beside}")
    try:
        _write_anew(copied, name)
    finally:
        storage.disconnect(copied)
    storage.copy_database(beside, file)
    beside.unlink()


def _is_to_settle(url: str, name: str) -> bool:
    opened = storage.existing(url)
    try:
        study = optuna.load_study(study_name=name, storage=opened)
        revocations = StudyFacts(study.user_attrs).revocations
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return any(holds(one) and revocation_of(one, revocations) for one in complete)
    finally:
        storage.disconnect(opened)


def _write_anew(opened: RDBStorage, name: str) -> None:
    study = optuna.load_study(study_name=name, storage=opened)
    study_id = opened.get_study_id_from_name(name)
    facts: dict[str, Any] = study.user_attrs
    others = opened.get_study_system_attrs(study_id)
    trials, before = study.get_trials(), _ids(opened, study)
    direction = study.direction
    optuna.delete_study(study_name=name, storage=opened)
    study = optuna.create_study(study_name=name, storage=opened, direction=direction)
    study.add_trials(amended(trials, StudyFacts(facts).revocations))
    now = dict(zip(map(str, before), _ids(opened, study), strict=True))
    for key, value in facts.items():
        study.set_user_attr(key, value)
    study_id = opened.get_study_id_from_name(name)
    for key, value in others.items():
        moved = _OF_TRIAL.sub(lambda found: f"{found[1]}{now.get(found[2], found[2])}", key)
        opened.set_study_system_attr(study_id, moved, value)


def _ids(opened: RDBStorage, study: optuna.Study) -> list[int]:
    study_id = opened.get_study_id_from_name(study.study_name)
    numbers = range(len(study.get_trials(deepcopy=False)))
    return [opened.get_trial_id_from_study_id_trial_number(study_id, n) for n in numbers]
