"""Revoke trials whose accuracy turns out to be too low after they were told as feasible.

Incumbents are validated on more seeds as the search goes on, and a first verdict may turn out
wrong. Optuna does not change finished trials, so a revocation is a note of the study. The database
is amended as well, for programs that read it without autotune.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import optuna
from optuna.storages import RDBStorage
from optuna.storages._rdb.models import TrialModel, TrialSystemAttributeModel, TrialValueModel
from optuna.storages._rdb.storage import _create_scoped_session
from optuna.trial import FrozenTrial, TrialState

from autotune.configuration.constraints import CONSTRAINTS
from autotune.storage.finished_trial import revocation_of
from autotune.storage.journal_lines import CONSTRAINTS_ATTRIBUTE
from autotune.storage.note_types import Revocation
from autotune.storage.notes import StudyNotes
from autotune.study.knowledge import BELOW_BEST, Knowledge


def apply_revocations(study: optuna.Study, knowledge: Knowledge) -> None:
    """Apply the study's revocations to `knowledge`, and to the database if something changed."""
    revocations = StudyNotes(study.user_attrs).revocations
    knowledge.revoke(revocations)
    # Optuna caches finished trials, so amended ones would look as if they had to be amended again.
    now = (len(revocations), len(knowledge.finished))
    if knowledge.amended != now:
        amend(study)
        knowledge.amended = now


def amend(study: optuna.Study) -> None:
    """Write the study's revocations into the trials in its database; no effect in memory."""
    revocations = StudyNotes(study.user_attrs).revocations
    backend = getattr(study._storage, "_backend", None)
    if revocations and isinstance(backend, RDBStorage):
        _amend(
            backend, study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)), revocations
        )


def _amend(
    backend: RDBStorage, trials: Sequence[FrozenTrial], revocations: Mapping[str, Revocation]
) -> None:
    """Set the constraints of revoked trials, and lower the values of infeasible ones.

    The dashboard picks its best trial by value alone, so infeasible trials were told a value below
    the best at that time. That best one may be revoked now.
    """
    feasible = {one.number for one in trials if all(m <= 0 for m in one.constraints.values())}
    found = ((one, revocation_of(one, revocations)) for one in trials)
    changed = [
        (one, revocation) for one, revocation in found if revocation and one.number in feasible
    ]
    if not changed:
        return
    feasible -= {one.number for one, _ in changed}
    best = max((one.value or 0.0 for one in trials if one.number in feasible), default=0.0)
    with _create_scoped_session(backend.scoped_session) as session:
        for one, revocation in changed:
            trial = TrialModel.find_or_raise_by_id(one._trial_id, session)
            told = TrialSystemAttributeModel.find_by_trial_and_key(
                trial, CONSTRAINTS_ATTRIBUTE, session
            )
            assert told is not None, "every trial of autotune's is told its constraints"
            told.value_json = json.dumps(_with_accuracy(one, revocation.margin))
        for one in trials:
            if one.number not in feasible and (one.value or 0.0) > BELOW_BEST * best:
                trial = TrialModel.find_or_raise_by_id(one._trial_id, session)
                value = TrialValueModel.find_by_trial_and_objective(trial, 0, session)
                assert value is not None, "a finished trial has a value"
                value.value = BELOW_BEST * best


def _with_accuracy(trial: FrozenTrial, margin: float) -> list[float]:
    margins = dict(zip(CONSTRAINTS, trial.constraints.values(), strict=True))
    return list((margins | {"accuracy": margin}).values())
