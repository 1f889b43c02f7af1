"""The study: what is asked and told, in memory and in a real database."""

import pytest
from optuna.trial import TrialState

from autotune.configuration.constraints import Verdict
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.samplers import AUTO, SAMPLERS
from autotune.study.finished import best_feasible
from autotune.study.study import INTERRUPTED
from covering import covers
from factories import cpu_machine
from study_factories import CRASHED, HOLDS, OOM, add, study_of, tell

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


def test_a_trial_is_finished_with_its_configuration_verdict_and_details(study):
    config = tell(study, 80.0, HOLDS)
    (trial,) = study.finished()
    assert (trial.number, trial.config) == (0, config)
    assert trial.verdict == Verdict(80.0, HOLDS, "why")
    assert trial.details.seconds == 1.5


def test_a_trial_is_complete_whatever_its_verdict_says(study):
    for value, margins in ((80.0, HOLDS), (90.0, OOM), (None, OOM), (None, CRASHED)):
        tell(study, value, margins)
    assert states(study) == [TrialState.COMPLETE] * 4


def test_the_best_feasible_trial_is_the_fastest_that_holds(study):
    for value, margins in ((80.0, HOLDS), (90.0, OOM), (85.0, HOLDS), (None, CRASHED)):
        tell(study, value, margins)
    best = best_feasible(study.finished())
    assert best.number == 2
