"""A study: what it proposes, keeps, tells Optuna, and reads back as it was written."""

import json

import optuna
import pytest
from optuna.trial import TrialState
from optuna_dashboard._serializer import serialize_frozen_trial

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.samplers import AUTO, SAMPLERS
from autotune.study.facts import Entries, Fact, StudyFacts
from autotune.study.study import INTERRUPTED
from autotune.values.errors import StudyMismatchError
from covering import covers
from factories import cpu_machine
from readers import FACTS, RUN
from study_factories import (
    CRASHED,
    HOLDS,
    OOM,
    OVER_MEMORY,
    add,
    finish,
    opened,
    reported,
    study_of,
    tell,
)

BASELINE = TrainingConfig.of({"batch_size": 16}).resolved(cpu_machine())


def states(study):
    return [trial.state for trial in study._study.get_trials()]


def test_every_configuration_is_what_comes_when_it_is_wanted():
    offered = {"num_workers": (0, 2), "prefetch_factor": (4, 8), "batch_size": (8, 16)}
    own = BASELINE.replace(batch_size=8, num_workers=0)
    space = SearchSpace({n: offered.get(n, (value,)) for n, value in own.as_dict().items()})
    study = study_of(space)
    for config in space.configurations():
        assert study.ask(config)[1] == config


def test_a_lost_trial_is_tried_once_more_when_the_others_are_done(nine):
    study = study_of(nine, sampler=AUTO)
    number, lost = study.ask()
    study.lose(number, "disk full")
    assert not study.is_known(lost)
    assert [c for c in nine.configurations() if not study.is_worth_a_try(c)] == [lost]
    assert lost not in {tell(study, 1.0, HOLDS) for _ in range(8)}
    assert not study.exhausted()
    number, again = study.ask()
    assert again == lost, "when the others are done"
    study.lose(number, "disk full")
    assert study.exhausted()


def test_a_trial_that_a_person_interrupts_comes_first_however_often(nine):
    study = study_of(nine, sampler=AUTO)
    number, wanted = study.ask()
    for _ in range(3):
        study.lose(number, INTERRUPTED)
        number, again = study.ask()
        assert again == wanted


def test_a_configuration_that_is_still_running_is_not_proposed_again(study):
    assert len({study.ask()[1] for _ in range(9)}) == 9


@covers("R16")
@pytest.mark.parametrize("name", [AUTO, *SAMPLERS])
def test_no_sampler_repeats_itself(nine, name):
    study = study_of(nine, sampler=name)
    values = iter(range(9))
    assert len({tell(study, float(next(values)), HOLDS) for _ in range(9)}) == 9


def test_an_added_trial_is_finished_and_never_proposed(study):
    added = add(study, BASELINE, 80.0)
    assert (added.number, added.config) == (0, BASELINE)
    assert study.finished() == [added]
    assert BASELINE not in {tell(study, 1.0, HOLDS) for _ in range(8)}


def test_a_batch_larger_than_one_that_ran_out_of_memory_is_not_tried(study):
    add(study, BASELINE.replace(batch_size=32), None, OOM)
    proposed = {tell(study, 1.0, HOLDS) for _ in range(7)}
    assert BASELINE.replace(batch_size=64) not in proposed
    assert BASELINE.replace(batch_size=16) in proposed
    assert BASELINE.replace(batch_size=64, num_workers=2) in proposed


def test_a_trial_that_crashed_says_nothing_about_larger_batches(study):
    add(study, BASELINE.replace(batch_size=32), None, CRASHED)
    assert BASELINE.replace(batch_size=64) in {tell(study, 1.0, HOLDS) for _ in range(8)}


def test_a_trial_is_complete_whatever_its_verdict_says(study):
    for value, margins in ((80.0, HOLDS), (90.0, OOM), (None, OOM), (None, CRASHED)):
        tell(study, value, margins)
    assert states(study) == [TrialState.COMPLETE] * 4


WRONG_FACTS = {
    "identity": [{"facts": {"space": {"batch_size": 8}}}, {"facts": 1}, "mine"],
    "plan": [{"options": [], "trials": 5}, {"options": {}}],
    "start_seconds": ["soon", -1.0, [2.0]],
    "baseline_runs": [[], [{}], [{**RUN, "blocks": []}], {"0": RUN}],
    "seed_seconds": [-1.0, "long"],
    "probe_samples": [-1, 1.5, "512x"],
    "seeds:batch_size=16": [0.5, ["good"]],
    "check:amp_dtype=null": [1, None],
    "drift:own": [5, [5], [{"trials": 1}], [{"trials": 4, "samples_per_second": -1}]],
    "seconds:accuracy": ["long", -1.0],
    "diagnosis": [{}, [], {"batch_size": "eight"}],
    "confirmation": [{"seconds": 1.0}, 5],
    "answer": [{"trials": 1}, {"trials": 1, "best": {}}, {"trials": "x", "best": {}}],
}


def test_a_study_reads_each_fact_as_what_it_wrote():
    written = {}
    read, facts = StudyFacts(FACTS), StudyFacts({}, written.__setitem__)
    for name, one in vars(StudyFacts).items():
        if isinstance(one, Fact) and name in FACTS:
            setattr(facts, name, getattr(read, name))
        elif isinstance(one, Entries):
            for key, value in one.read(read).items():
                one.read(facts)[key] = value
    assert written == json.loads(json.dumps({k: v for k, v in FACTS.items() if k != "colour"}))
    assert facts.attributes == written
    assert facts.drift_checks["@cuda:1"] == read.drift_checks["@cuda:1"]


@covers("S18")
@pytest.mark.parametrize(
    ("name", "fact"), [(name, fact) for name, facts in WRONG_FACTS.items() for fact in facts]
)
def test_a_fact_that_is_something_else_is_refused_by_name(name, fact):
    StudyFacts({name: FACTS[name]} if name in FACTS else {}).check()
    with pytest.raises(StudyMismatchError, match=f"fact '{name.partition(':')[0]}' is not what"):
        StudyFacts({name: fact}).check()


@covers("S18")
def test_a_study_with_such_a_fact_is_not_opened_and_not_backed_up(nine, url, tmp_path):
    optuna.create_study(study_name="s", storage=url, direction="maximize").set_user_attr(
        "seed_seconds", "long"
    )
    with pytest.raises(StudyMismatchError, match="'seed_seconds' is not what"):
        opened(url, nine)
    assert not (tmp_path / "study.db.bak").exists()


@pytest.fixture
def told(nine, url):
    """Three trials: two that were trained alike, of which one did not fit, and another."""
    study = opened(url, nine, sampler="auto")
    for value, margins, kind in [(3.0, HOLDS, "large"), (None, OOM, "large"), (2.0, HOLDS, "own")]:
        number, _ = study.ask()
        reason = "" if value else "memory"
        finish(study, number, value, margins, reason, training=kind)
    return study


def test_a_reader_sees_what_was_found_out_of_the_accuracy_since(told, url):
    for training, qualities in (("large", [0.5, 0.7]), ("own", [0.8])):
        told.notes.qualities[training] = qualities
    trials = reported(url).trials
    assert [trial.details.quality for trial in trials] == [0.6, None, 0.8]
    assert [trial.verdict.margins["accuracy"] for trial in trials] == [-0.01, 0.0, -0.01], "as told"
    told.disconnect()


def test_a_trial_that_was_never_judged_shows_nothing_that_others_were(nine, url):
    study = opened(url, nine, sampler="auto")
    number, _ = study.ask()
    finish(study, number, 3.0, {**HOLDS, "accuracy": 0.0}, training="own")
    study.notes.qualities["own"] = [0.8]
    (trial,) = reported(url).trials
    assert (trial.details.quality, trial.verdict.margins["accuracy"]) == (None, 0.0)
    study.disconnect()


def written_of(study, value, margins):
    """Ask, tell this verdict, and read the trial back as Optuna stored it."""
    tell(study, value, margins)
    return study._study.get_trials()[-1]


def stored_best(study):
    """The number of the trial that the dashboard shows as the best."""
    return study._storage.get_best_trial(study._study_id).number


def test_a_trial_shows_its_margins_in_their_order_as_optunas_constraints(study):
    assert list(written_of(study, 80.0, OVER_MEMORY).constraints.values()) == [0.25, 0.5, -1.0]


def test_the_dashboard_shows_the_configuration_and_the_reason(study):
    attributes = serialize_frozen_trial(0, written_of(study, 80.0, HOLDS), {})["user_attrs"]
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
    stored = [written_of(study, value, margins) for value, margins in trials]
    holding = max(
        (number for number, (_, margins) in enumerate(trials) if margins is HOLDS),
        key=lambda number: trials[number][0] or 0,
    )
    assert stored_best(study) == holding
    assert all(trial.value is not None for trial in stored)


def test_optuna_is_told_as_many_digits_as_a_person_reads(study):
    trial = written_of(study, 750.2922536543072, HOLDS)
    assert trial.value == 750.292
    assert trial.user_attrs["value"] == 750.2922536543072


def test_a_new_study_names_its_metric_and_its_constraints(nine, url):
    opened(url, nine)
    stored = optuna.load_study(study_name="s", storage=url)
    assert stored.metric_names == ["samples/s"]
    assert stored.user_attrs["constraint_names"] == ["memory", "accuracy", "ran"]
