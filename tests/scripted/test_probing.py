"""Accuracy probes are run where they matter, and each only once."""

import pytest

from autotune.configuration.job import Probe
from autotune.study.archive import read_archive
from autotune.values.errors import WorkloadError
from autotune.values.outcome import Lost, NonFinite, TimedOut
from scripted_runner import (
    BATCHES,
    ScriptedRunner,
    at,
    batch_of,
    events_of,
    in_proportion,
    options_in,
    unstored_in,
)


def test_a_trial_that_is_too_slow_to_win_is_not_probed(tmp_path):
    runner = ScriptedRunner(lambda config, phase: at(800 / batch_of(config)))
    events_of(unstored_in(tmp_path), runner)
    assert runner.batches("trial")
    assert runner.probes() == [(8, (0,))]


def test_the_same_batch_size_is_probed_once_whatever_the_workers(tmp_path):
    runner = ScriptedRunner(in_proportion)
    space = "batch_size: [8, 64]\nnum_workers: [0, 1, 2]\n"
    events_of(unstored_in(tmp_path, space=space, trials=6), runner)
    probes = runner.probes()
    assert len(probes) == len(set(probes))
    assert [seeds for batch, seeds in probes if batch == 64] == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("loss", "further"), [(0.02, [(64, (1,)), (8, (1,))]), (0.2, [])], ids=["near", "far off"]
)
def test_the_baselines_further_seeds_come_with_those_of_a_configuration_in_doubt(
    loss, further, tmp_path
):
    def quality(config, seed):
        return 0.9 - (loss if batch_of(config) == 64 else 0.0)

    runner = ScriptedRunner(in_proportion, quality)
    events_of(unstored_in(tmp_path, space="batch_size: [8, 64]\n", trials=2), runner)
    assert runner.probes() == [(8, (0,)), (64, (0,)), *further]


def test_with_a_floor_the_baseline_has_three_seeds_at_once(tmp_path):
    runner = ScriptedRunner(in_proportion)
    events_of(unstored_in(tmp_path, min_accuracy=0.5), runner)
    assert runner.probes()[0] == (8, (0, 1, 2))


def test_a_short_time_shortens_the_probes(tmp_path):
    asked = {}
    for budget in (None, 360.0, 120.0, 10.0):
        runner = ScriptedRunner(lambda config, phase: at(100))
        options = {"space": "num_workers: [0]\n", "time_budget_seconds": budget}
        events_of(unstored_in(tmp_path / str(budget), **options), runner)
        asked[budget] = next(job.task.samples for job in runner.jobs if job.task.kind == "probe")
    assert asked == {None: 600, 360.0: 600, 120.0: 304, 10.0: 304}, "whole batches"


def test_a_resumed_search_does_not_repeat_a_probe(tmp_path):
    events_of(options_in(tmp_path, trials=3), ScriptedRunner(in_proportion))
    again = ScriptedRunner(in_proportion)
    events_of(options_in(tmp_path, trials=5), again)
    assert 8 not in [batch for batch, _ in again.probes()]


def test_every_probe_trains_on_equally_many_samples_whole_batches_for_all(tmp_path):

    events_of(unstored_in(tmp_path, space=BATCHES), runner := ScriptedRunner(in_proportion))
    (probed,) = {job.task.samples for job in runner.jobs if isinstance(job.task, Probe)}
    assert probed % 128 == 0


def slightly_worse(config, seed):
    """Larger batches lose a little, so that further seeds are asked for."""
    return 0.9 - 0.02 * (batch_of(config) > 8)


def is_later_of_baseline(job):
    return isinstance(job.task, Probe) and job.task.seeds[0] > 0 and job.config["batch_size"] == 8


@pytest.mark.parametrize(
    ("failure", "said"), [(TimedOut("probe", 60.0), "60 s"), (NonFinite("nan"), "nan")]
)
def test_further_seeds_of_the_baseline_that_fail_are_no_fault_of_another(failure, said, tmp_path):
    def instead(job, outcome):
        return failure if is_later_of_baseline(job) else outcome

    runner = ScriptedRunner(in_proportion, slightly_worse, instead=instead)
    with pytest.raises(WorkloadError, match=said) as raised:
        events_of(options_in(tmp_path), runner)
    assert "quality cannot be measured with your own settings" in str(raised.value)
    trials = read_archive(f"sqlite:///{tmp_path / 'study.db'}").finished
    assert [trial.number for trial in trials if not trial.verdict.feasible] == []


def test_a_lost_seed_of_the_baseline_loses_no_search(tmp_path):
    lost = iter([True])

    def instead(job, outcome):
        return Lost("no process") if is_later_of_baseline(job) and next(lost, False) else outcome

    runner = ScriptedRunner(in_proportion, slightly_worse, instead=instead)
    assert events_of(unstored_in(tmp_path), runner)[-1].best.keeps_baseline


def test_a_lost_probe_says_nothing_about_the_configuration(tmp_path):
    lost = iter([True])

    def instead(job, outcome):
        largest = isinstance(job.task, Probe) and job.config["batch_size"] == 128
        return Lost("no process") if largest and next(lost, False) else outcome

    answered = events_of(unstored_in(tmp_path), ScriptedRunner(in_proportion, instead=instead))[-1]
    assert answered.best.config["batch_size"] == 128
