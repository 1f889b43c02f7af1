"""States of a candidate, from a trial to the result."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.context.options import SearchOptions
from autotune.context.search_context import SearchContext
from autotune.context.workload import traits_of_model
from autotune.process.stop import OUT_OF_TIME, Clock
from autotune.sampling.acquisition import Posterior
from autotune.searching.confirmation import confirm
from autotune.searching.confirmation.confirm import Candidate
from autotune.searching.run.search_run import SearchRun
from factories import IMAGE_FACTS, cpu_machine, measurement
from scripted_runner import ScriptedRunner
from study_factories import add, study_of


@pytest.fixture
def search_of(nine, tmp_path):
    """A function that returns a search whose trials had these rates and speeds of the machine."""

    def search(*trials):
        options = SearchOptions.of(
            model_path=Path("m.py"), study="s", storage=None, folder=tmp_path, out=tmp_path / "b"
        )
        study, configs = study_of(nine), list(nine.configurations())
        for config, (rate, speed) in zip(configs, trials, strict=False):
            run = replace(measurement(rate), machine_speed=speed)
            told = {"samples_per_second": rate, "stored_measurement": asdict(run)}
            add(study, config, rate / speed, seconds=1.0, **told)
        context = SearchContext(
            options, cpu_machine(), traits_of_model(IMAGE_FACTS), configs[0], nine, 9, 1 << 32
        )
        return SearchRun(context, ScriptedRunner(), study)

    return search


@pytest.fixture
def late(search_of):
    """A search whose time is over, with trials 0.5 % and 50 % above the baseline."""
    search = search_of((100.0, 1.0), (100.5, 1.0), (150.0, 1.0))
    context = replace(search.context, time_budget_seconds=1.0)
    return replace(search, context=context, clock=Clock(1.0, time.monotonic() - 100))


def test_a_trial_on_a_machine_that_had_slowed_comes_where_its_full_speed_would_be(search_of):
    search = search_of((100.0, 1.0), (150.0, 1.0), (100.0, 0.5))
    found = confirm.candidates(search, NO_COSTS)
    assert [one.trial.number for one in found] == [2, 1]


@pytest.fixture
def worse(search_of):
    """A search in which batches of 32, the fastest, were found to train worse after their trial."""
    search = search_of((100.0, 1.0), (110.0, 1.0), (90.0, 1.0), (150.0, 1.0))
    own, *_, large = search.study.finished()
    assert large.config["batch_size"] == 32
    assert large.verdict.feasible
    for one, quality in ((own, 0.9), (large, 0.5)):
        training = search.prober.training_of(one.config)
        search.study.notes.qualities[training] = [quality] * 3
    return search


NO_COSTS = SimpleNamespace(fixed_seconds=lambda config, run: 0.0)


def test_what_the_budget_cut_off_is_undecided(worse):
    one = Candidate(worse.study.finished()[1], Posterior())
    one.end("failed", OUT_OF_TIME)
    assert one.state == "undecided"


def test_a_trial_that_known_seeds_speak_against_is_no_candidate(worse):
    assert [one.trial.number for one in confirm.candidates(worse, NO_COSTS)] == [1]


def test_a_candidate_that_known_seeds_speak_against_is_refused_before_any_round(worse, monkeypatch):
    """Even if it came among the candidates."""
    monkeypatch.setattr(AccuracyProber, "speaks_against", lambda *_: False)
    run = confirm.ConfirmationRun(worse, ())
    events = list(run.run())
    large, other = run.candidates
    assert (large.trial.number, large.state) == (3, "refused")
    assert large.reason.startswith("evaluate is 0.5, minimum 0.89"), large.reason
    assert other.was_tested
    assert not large.was_tested
    assert set(worse.runner.batches("confirmation")) == {16}
    assert events[0].trial == large.trial


def test_a_candidate_that_further_trials_rule_out_is_not_raced(search_of, monkeypatch):
    search = search_of((100.0, 1.0), (150.0, 1.0), (160.0, 1.0))
    waiting, refused = (Candidate(trial, Posterior()) for trial in search.study.finished()[1:])
    refused.state = "refused"
    run = confirm.ConfirmationRun(search, (), [waiting, refused])
    monkeypatch.setattr(confirm, "candidates", lambda *_: [])
    assert not list(run.run())
    assert run.candidates == [refused]


def test_every_trial_that_looked_faster_is_undecided_whichever_comes_first(late, monkeypatch):
    trials = late.study.finished()[1:]
    found = [Candidate(trial, Posterior()) for trial in trials]
    monkeypatch.setattr(confirm, "candidates", lambda *_: found)
    run = confirm.ConfirmationRun(late, ())
    assert [event.trial for event in run.run()] == trials
    assert [one.trial for one in run.undecided] == trials
    assert late.time_budget.is_candidate(trials[1])
    assert not late.time_budget.is_candidate(trials[0])
