"""Opens studies: creates or continues them."""

from __future__ import annotations

import warnings

import optuna
from optuna.study import StudyDirection

from autotune.constraints import CONSTRAINTS
from autotune.errors import StudyMismatchError
from autotune.objectives import Objective
from autotune.space import SearchSpace
from autotune.tuning.storing.journal import Journal
from autotune.tuning.storing.mutex import mutex_for
from autotune.tuning.storing.retell import reconcile
from autotune.tuning.storing.storage import connected, refuse, storage_errors
from autotune.tuning.storing.study import TuningStudy


def open_study(
    name: str,
    storage: str | None,
    space: SearchSpace,
    objective: Objective,
    journal: Journal | None = None,
) -> TuningStudy:
    """Create the study, or continue it where it exists; in memory without a storage.

    What only the journal knows, because of a crash or because the database is gone, is told.

    Raises:
        StorageError: the storage cannot be reached, is locked, full or not a database.
    """
    with storage_errors(storage):
        try:
            mutex = mutex_for(storage)
        except (ImportError, ValueError) as error:  # the driver of a database is not installed
            refuse(storage, error)
        try:
            with mutex.turn():
                study = _opened(name, storage, objective)
                if journal is not None:
                    reconcile(study, journal)
            return TuningStudy(study, space, objective, journal, mutex)
        except BaseException:
            mutex.close()
            raise


def _opened(name: str, storage: str | None, objective: Objective) -> optuna.Study:
    try:
        study = created(name, storage, objective)
    except (ImportError, ValueError) as error:
        refuse(storage, error)
    if study.direction != StudyDirection[objective.direction.upper()]:
        raise StudyMismatchError(f"study {name!r} has another direction than {objective.name}.")
    return study


def created(name: str, storage: str | None, objective: Objective) -> optuna.Study:
    """Optuna's study of that name, made where there is none."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        study_name=name,
        storage=connected(storage),
        direction=objective.direction,
        load_if_exists=True,
    )
    if "constraint_names" not in study.user_attrs:
        _set_metric_name(study, objective.unit)
        study.set_user_attr("constraint_names", list(CONSTRAINTS))
    return study


def _set_metric_name(study: optuna.Study, unit: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([unit])
