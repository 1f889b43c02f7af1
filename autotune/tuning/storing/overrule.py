"""Trials that are found out to be infeasible after they were told otherwise.

What leads a search is proven by and by, and what was told first may not hold. Optuna finishes a
trial once and for all, so what was found out is a note of the study; the database is amended, too,
for whoever reads it without this program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.storages._rdb.models import TrialModel, TrialSystemAttributeModel, TrialValueModel
from optuna.storages._rdb.storage import _create_scoped_session
from optuna.trial import FrozenTrial, TrialState

from autotune.constraints import CONSTRAINTS
from autotune.tuning.storing.finished import RULINGS, ruling_on
from autotune.tuning.storing.knowledge import BELOW_BEST, Knowledge
from autotune.tuning.storing.lines import CONSTRAINTS_ATTRIBUTE


def obey_rulings(study: optuna.Study, knowledge: Knowledge) -> None:
    """Take the trials for infeasible that the study's note of rulings is about."""
    rulings: Mapping[str, Any] = study.user_attrs.get(RULINGS, {})
    knowledge.overrule(rulings)
    # Optuna keeps finished trials as they were read, so they look as if they were to be amended.
    now = (len(rulings), len(knowledge.finished))
    if knowledge.amended != now:
        amend(study)
        knowledge.amended = now


def amend(study: optuna.Study) -> None:
    """Write into the database what the study's note of rulings says."""
    rulings: Mapping[str, Any] = study.user_attrs.get(RULINGS, {})
    backend = getattr(study._storage, "_backend", None)
    if rulings and isinstance(backend, RDBStorage):
        _amend(backend, study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)), rulings)


def _amend(backend: RDBStorage, trials: Sequence[FrozenTrial], rulings: Mapping[str, Any]) -> None:
    """Their constraints, and all values that are not to look like the best.

    The dashboard picks its best trial by value alone, so what is infeasible was told a value below
    the best of its time, which may be one of these.
    """
    feasible = {one.number for one in trials if all(m <= 0 for m in one.constraints.values())}
    found = {one.number: ruling_on(one.number, one.user_attrs, rulings) for one in trials}
    changed = [one for one in trials if one.number in feasible and found[one.number]]
    if not changed:
        return
    feasible -= {one.number for one in changed}
    best = max((one.value or 0.0 for one in trials if one.number in feasible), default=0.0)
    with _create_scoped_session(backend.scoped_session) as session:
        for one in changed:
            margin = float((found[one.number] or {})["margin"])
            trial = TrialModel.find_or_raise_by_id(one._trial_id, session)
            told = TrialSystemAttributeModel.find_by_trial_and_key(
                trial, CONSTRAINTS_ATTRIBUTE, session
            )
            assert told is not None, "every trial of autotune's is told its constraints"
            told.value_json = json.dumps(_with_accuracy(one, margin))
        for one in trials:
            if one.number not in feasible and (one.value or 0.0) > BELOW_BEST * best:
                trial = TrialModel.find_or_raise_by_id(one._trial_id, session)
                value = TrialValueModel.find_by_trial_and_objective(trial, 0, session)
                assert value is not None, "a finished trial has a value"
                value.value = BELOW_BEST * best


def _with_accuracy(trial: FrozenTrial, margin: float) -> list[float]:
    margins = dict(zip(CONSTRAINTS, trial.constraints.values(), strict=True))
    return list((margins | {"accuracy": margin}).values())
