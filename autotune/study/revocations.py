"""Let a database show which trials were revoked after they were told as feasible.

Incumbents are validated on more seeds as the search goes on, and a first verdict may turn out
wrong. Optuna does not change finished trials, so a revocation is a note of the study. For programs
that read an SQLite file without autotune, the study is rebuilt: its trials are added to a new study
that takes its place. Processes that share a server or a file hold the study by its number there, so
it stays as it was told.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.configuration.constraints import CONSTRAINTS
from autotune.storage.database import PATIENCE_SECONDS, connected, database_of
from autotune.storage.finished_trial import revocation_of
from autotune.storage.journal_lines import CONSTRAINTS_ATTRIBUTE
from autotune.storage.note_types import Revocation
from autotune.storage.notes import StudyNotes
from autotune.storage.trial_details import REASON
from autotune.study.knowledge import BELOW_BEST
from autotune.study.stored_study import StoredStudy

# Names of study attributes about a trial, by which Optuna Dashboard finds its notes and files.
_OF_TRIAL = re.compile(r"^(dashboard:(?:artifacts:)?)(\d+)(?=:)")


def amend(stored: StoredStudy) -> bool:
    """Rebuild a study in its SQLite file if that shows a revoked trial as feasible.

    The file is changed in one step. It has the old study or the new one, whenever this is killed.

    Returns:
        True if it was rebuilt; the study has to be opened anew, and its connections are closed.

    Raises:
        OSError, sqlite3.Error, SQLAlchemyError, StorageInternalError: the file cannot be written.
    """
    database = database_of(stored.storage.url) if isinstance(stored.storage, RDBStorage) else None
    if database is None or not database.exists() or not _revoked(stored.study):
        return False
    stored.close()
    beside = database.with_name(f"{database.name}.rebuilt")
    beside.unlink(missing_ok=True)
    _copy(database, beside)
    storage = connected(f"sqlite:///{beside}")
    assert storage is not None, "it is a file"
    copy = StoredStudy(
        optuna.load_study(study_name=stored.study.study_name, storage=storage), storage
    )
    rebuild(copy)
    copy.close()
    _copy(beside, database)
    beside.unlink()
    return True


def rebuild(stored: StoredStudy) -> None:
    """Replace a study by one with its revocations applied; no other process may use it.

    Numbers, dates and notes stay. A study without revocations is left as it is.
    """
    revoked = _revoked(stored.study)
    if not revoked:
        return
    study, storage, name = stored.study, stored.storage, stored.study.study_name
    direction = study.direction
    notes, shown = study.user_attrs, storage.get_study_system_attrs(stored.study_id)
    trials, before = study.get_trials(), stored.ids()
    _apply(revoked, trials)
    optuna.delete_study(study_name=name, storage=storage)
    study = optuna.create_study(study_name=name, storage=storage, direction=direction)
    study.add_trials(trials)
    anew = StoredStudy(study, storage)
    now = dict(zip(map(str, before), anew.ids(), strict=True))
    for key, value in notes.items():
        study.set_user_attr(key, value)
    for key, value in shown.items():
        moved = _OF_TRIAL.sub(lambda found: f"{found[1]}{now.get(found[2], found[2])}", key)
        storage.set_study_system_attr(anew.study_id, moved, value)


def _revoked(study: optuna.Study) -> dict[int, Revocation]:
    """Return the revocations of trials that count as feasible in the database, by their numbers."""
    revocations = StudyNotes(study.user_attrs).revocations
    if not revocations:
        return {}
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    found = {one.number: revocation_of(one, revocations) for one in complete if _holds(one)}
    return {number: revocation for number, revocation in found.items() if revocation}


def _apply(revoked: Mapping[int, Revocation], trials: list[FrozenTrial]) -> None:
    """Set constraints and reasons of revoked trials, and lower the values of infeasible ones.

    The dashboard picks its best trial by value alone, so infeasible trials were told a value below
    the best at that time. That best one may be revoked now.
    """
    for one in trials:
        if revocation := revoked.get(one.number):
            margins = dict(zip(CONSTRAINTS, one.constraints.values(), strict=True))
            told = list((margins | {"accuracy": revocation.margin}).values())
            one.system_attrs = {**one.system_attrs, CONSTRAINTS_ATTRIBUTE: told}
            one.user_attrs = {**one.user_attrs, REASON: revocation.reason}
    complete = [one for one in trials if one.state == TrialState.COMPLETE]
    best = max((one.value or 0.0 for one in complete if _holds(one)), default=0.0)
    for one in complete:
        if not _holds(one):
            one.value = min(one.value or 0.0, BELOW_BEST * best)


def _holds(trial: FrozenTrial) -> bool:
    return all(margin <= 0 for margin in trial.constraints.values())


def _copy(source: Path, target: Path) -> None:
    """Copy an SQLite file in one transaction; other programs may read both meanwhile.

    Raises:
        sqlite3.Error: one of the files cannot be used.
    """

    def refuse_to_wait(status: int, *_: int) -> None:
        if status == sqlite3.SQLITE_BUSY:
            raise sqlite3.OperationalError("database is locked")

    files = (sqlite3.connect(path, timeout=PATIENCE_SECONDS) for path in (source, target))
    with closing(next(files)) as one, closing(next(files)) as other:
        one.backup(other, progress=refuse_to_wait)
