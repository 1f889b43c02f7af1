"""Importance of each knob: its part in a trial being among the best, by Optuna's PED-ANOVA.

Knobs that no trial varies without each other share one importance.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import get_param_importances
from optuna.trial import create_trial

from autotune.configuration.training_config import with_own
from autotune.knobs import KNOBS
from autotune.study.finished import FinishedTrial

FEWEST_TO_COMPARE = 12
"""Fewest trials of a study from which knobs are compared with each other.

PED-ANOVA compares the best tenth with all trials; that must be more than one trial.
"""


def importances(trials: Sequence[FinishedTrial]) -> dict[str, float]:
    """Return the importances of the knobs that vary, with sum 1; empty if trials are too few.

    Knobs that always vary together have one importance, under the first of them.
    """
    if len(trials) < FEWEST_TO_COMPARE:
        return {}
    values = {
        name: tuple(dict.fromkeys(t.config[name] for t in trials)) for name in aliases(trials)
    }
    choices = {name: CategoricalDistribution(options) for name, options in values.items()}
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


def aliases(trials: Sequence[FinishedTrial]) -> dict[str, tuple[str, ...]]:
    """Return each knob that varies, with the knobs that vary exactly as it does.

    Two knobs do where equal values of one always come with equal values of the other. Only the
    first of such knobs is a key.
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in with_own(KNOBS, (trial.config for trial in trials)):
        used = [trial.config[name] for trial in trials]
        places = {value: place for place, value in enumerate(dict.fromkeys(used))}
        if len(places) > 1:
            groups.setdefault(tuple(places[value] for value in used), []).append(name)
    return {first: tuple(others) for first, *others in groups.values()}
