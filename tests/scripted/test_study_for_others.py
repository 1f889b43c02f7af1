"""Optuna's own samplers, its best trial and its dashboard understand a study."""

import optuna
import pytest
from optuna_dashboard._serializer import serialize_frozen_trial

from study_factories import HOLDS, OOM, OVER_MEMORY, opened, tell


def told(study, value, margins):
    """Ask, tell this verdict, and read the trial back as Optuna stored it."""
    tell(study, value, margins)
    return study._study.get_trials()[-1]


def stored_best(study):
    """The number of the trial that the dashboard shows as the best."""
    return study._storage.get_best_trial(study._study_id).number


def test_a_trial_shows_its_margins_in_their_order_as_optunas_constraints(study):
    assert list(told(study, 80.0, OVER_MEMORY).constraints.values()) == [0.25, 0.5, -1.0]


def test_the_dashboard_shows_the_configuration_and_the_reason(study):
    attributes = serialize_frozen_trial(0, told(study, 80.0, HOLDS), {})["user_attrs"]
    assert {"config", "reason", "value"} <= {attribute["key"] for attribute in attributes}


@pytest.mark.parametrize(
    "trials",
    [
        [(80.0, HOLDS), (500.0, OVER_MEMORY)],
        [(80.0, HOLDS), (80.0, OVER_MEMORY)],
        [(80.0, HOLDS), (500.0, OVER_MEMORY), (90.0, HOLDS), (600.0, OVER_MEMORY)],
        [(80.0, HOLDS), (None, OOM), (None, OOM)],
        [(80.0, HOLDS), (70.0, HOLDS), (None, OOM)],
    ],
    ids=["faster", "as fast", "faster than a better one", "out of memory", "some of each"],
)
def test_an_infeasible_trial_is_never_the_one_with_the_best_value(study, trials):
    stored = [told(study, value, margins) for value, margins in trials]
    holding = max(
        (number for number, (_, margins) in enumerate(trials) if margins is HOLDS),
        key=lambda number: trials[number][0] or 0,
    )
    assert stored_best(study) == holding
    assert all(trial.value is not None for trial in stored)


def test_optuna_is_told_as_many_digits_as_a_person_reads(study):
    trial = told(study, 750.2922536543072, HOLDS)
    assert trial.value == 750.292
    assert trial.user_attrs["value"] == 750.2922536543072


def test_a_new_study_names_its_metric_and_its_constraints(nine, url):
    opened(url, nine)
    stored = optuna.load_study(study_name="s", storage=url)
    assert stored.metric_names == ["samples/s"]
    assert stored.user_attrs["constraint_names"] == ["memory", "accuracy", "ran"]
