"""How much each knob decides whether a trial is among the best: Optuna's PED-ANOVA."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import get_param_importances
from optuna.trial import create_trial

from autotune.knobs import ALL_KNOBS
from autotune.tuning.storing.study import FinishedTrial

# The tenth that is best has to be more than one trial.
_FEWEST_TRIALS = 12


def importances(trials: Sequence[FinishedTrial]) -> dict[str, float]:
    """Of the knobs that the trials differ in, adding up to 1; empty where too few trials tell."""
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
        warnings.simplefilter("ignore")  # that all are equal says that nothing is known
        try:
            found = get_param_importances(study)
        except (ValueError, RuntimeError):
            return {}
    return found if any(found.values()) else {}
