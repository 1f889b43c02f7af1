"""Importance of each knob for a trial being among the best, by Optuna's PED-ANOVA."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import get_param_importances
from optuna.trial import create_trial

from autotune.knobs import ALL_KNOBS
from autotune.storage.finished_trial import FinishedTrial

# PED-ANOVA compares the best tenth with all trials; that must be more than one trial.
_FEWEST_TRIALS = 12


def importances(trials: Sequence[FinishedTrial]) -> dict[str, float]:
    """Return the importances of the knobs that vary, with sum 1; empty if trials are too few."""
    if len(trials) < _FEWEST_TRIALS:
        return {}
    values = {k.name: tuple(dict.fromkeys(t.config[k.name] for t in trials)) for k in ALL_KNOBS}
    choices = {n: CategoricalDistribution(v) for n, v in values.items() if len(v) > 1}
    worst = min((trial.verdict.value or 0.0 for trial in trials), default=0.0)
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        create_trial(
            params={name: trial.config[name] for name in choices},
            distributions=dict(choices),
            value=trial.verdict.value if trial.verdict.feasible else worst,
        )
        for trial in trials
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that all values are equal
        try:
            found = get_param_importances(study)
        except (ValueError, RuntimeError):
            return {}
    return found if any(found.values()) else {}
