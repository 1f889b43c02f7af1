"""Trials end when another one is expected to take longer than it saves in the user's run."""

from dataclasses import replace

import pytest

from autotune.configuration.constraints import Tolerance
from autotune.configuration.job import Probe
from autotune.searching.run.events import Answered, TrialsEnded, Warned
from autotune.searching.run.time_budget import FEWEST_TRIALS
from autotune.searching.search import search
from autotune.values.outcome import Inspected
from factories import cpu_machine
from scripted_runner import FACTS, at, batch_of, trials_of, unstored_in
from search_clock import timed_runner

SPACE = "trials: 50\nbatch_size: [8, 16]\nnum_workers: [0, 1, 2]\nnum_threads: [1, 2]\n"
LOADING = "trials: 50\nnum_workers: [0, 1, 2, 4]\nprefetch_factor: [2, 4]\nnum_threads: [1, 2]\n"


def searched(folder, runner, space=SPACE, **options):
    return list(search(unstored_in(folder, space, **{"trials": None, **options}), runner))


def reasons(events):
    return [event.reason for event in events if isinstance(event, TrialsEnded)]


def flat_runner(monkeypatch):
    """Everything is equally fast, and takes minutes."""
    return timed_runner(
        monkeypatch, measure=lambda config, phase: at(100), seconds=lambda config, phase: 240.0
    )


def test_trials_end_early_unless_their_number_was_given(tmp_path, monkeypatch):
    flat = flat_runner(monkeypatch)
    events = searched(tmp_path, flat, LOADING)
    (ended,) = reasons(events)
    assert "another trial is unlikely to save more than it takes, in 1 h" in ended
    assert FEWEST_TRIALS < len(trials_of(events)) < 14
    assert len(trials_of(searched(tmp_path, flat, LOADING, trials=14))) == 14


def test_for_a_longer_run_more_is_tried(tmp_path, monkeypatch):
    def trials_for(seconds):
        flat = flat_runner(monkeypatch)
        return len(trials_of(searched(tmp_path, flat, LOADING, run_samples=100 * seconds)))

    assert trials_for(1800) < trials_for(24 * 3600)


def test_a_refuted_candidate_sends_the_search_back_to_its_trials(tmp_path, monkeypatch):
    """One lucky trial made all others look as if they were not worth their time."""

    def rate(config, phase):
        lucky = config["num_workers"] == 1 and phase == "trial"
        return at(400 if lucky else 130 if config["num_workers"] == 4 else 100)

    events = searched(tmp_path, timed_runner(monkeypatch, measure=rate), LOADING)
    assert len(reasons(events)) == 2
    assert isinstance(events[-1], Answered)
    assert events[-1].best.config["num_workers"] == 4


@pytest.mark.parametrize(("gained", "allowed"), [(0.0, 0.01), (0.5, 0.01), (0.5, 0.0)])
def test_where_nothing_may_be_lost_what_trains_otherwise_comes_last(
    tmp_path, monkeypatch, gained, allowed
):
    """No share of nothing may be lost, so no seeds could show that a batch trains as well."""
    runner = timed_runner(
        monkeypatch,
        measure=lambda config, phase: at(10 * batch_of(config)),
        quality=lambda config, seed: 2.0 - gained,
        untrained=2.0,
        inspected=Inspected(cpu_machine(), replace(FACTS, has_evaluate=False)),
    )
    events = searched(tmp_path, runner, accuracy_tolerance=Tolerance(allowed, relative=True))
    warned = [event for event in events if isinstance(event, Warned)]
    assert any("gains nothing" in event.warning for event in warned) == (not gained)
    gained = gained * allowed
    batches = {trial.config["batch_size"] for trial in trials_of(events)}
    assert batches == ({8, 16} if gained else {8})
    probed = {job.config["batch_size"] for job in runner.jobs if isinstance(job.task, Probe)}
    assert probed == batches
