"""Create a study, or open it to continue it."""

from __future__ import annotations

import warnings

import optuna
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection

from autotune.configuration.constraints import CONSTRAINTS, Objective
from autotune.configuration.search_space import SearchSpace
from autotune.storage.database import connected, refuse, storage_errors
from autotune.storage.journal import Journal
from autotune.storage.mutex import mutex_for
from autotune.storage.notes import StudyNotes
from autotune.study.journal_sync import reconcile
from autotune.study.revocations import amend
from autotune.study.stored_study import StoredStudy
from autotune.study.study import TuningStudy
from autotune.values.errors import StudyMismatchError


def open_study(
    name: str,
    storage: str | None,
    space: SearchSpace,
    objective: Objective,
    journal: Journal | None = None,
) -> TuningStudy:
    """Open the study, or create it if it does not exist; in memory without a storage.

    Trials and facts that only the journal has, after a crash or a loss of the database, are added
    to the study.

    Raises:
        StorageError: the storage cannot be reached, is locked, full or not a database.
        StudyMismatchError: the study exists with another direction or with foreign trials.
    """
    with storage_errors(storage):
        try:
            mutex = mutex_for(storage)
        except (ImportError, ValueError) as error:  # the database's driver is not installed
            refuse(storage, error)
        try:
            with mutex.turn():
                stored = _opened(name, storage, objective)
                if journal is not None:
                    reconcile(stored, journal)
                if amend(stored):
                    stored = _opened(name, storage, objective)
            return TuningStudy(stored, space, objective, journal, mutex)
        except BaseException:
            mutex.close()
            raise


def _opened(name: str, storage: str | None, objective: Objective) -> StoredStudy:
    try:
        stored = created(name, storage, objective)
    except (ImportError, ValueError) as error:
        refuse(storage, error)
    if stored.study.direction != StudyDirection[objective.direction.upper()]:
        raise StudyMismatchError(f"study {name!r} has another direction than {objective.name}.")
    return stored


def created(name: str, storage: str | None, objective: Objective) -> StoredStudy:
    """Open Optuna's study of that name, or create it; None stands for memory."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    opened = connected(storage) or InMemoryStorage()
    study = optuna.create_study(
        study_name=name,
        storage=opened,
        direction=objective.direction,
        load_if_exists=True,
    )
    if not StudyNotes(study.user_attrs).is_of_autotune:
        _set_metric_name(study, objective.unit)
        study.set_user_attr(StudyNotes.constraint_names.key, list(CONSTRAINTS))
    return StoredStudy(study, opened)


def _set_metric_name(study: optuna.Study, unit: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([unit])
