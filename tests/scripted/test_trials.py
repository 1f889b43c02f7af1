"""Trials that are not run, stopped early, or timed while the machine drifts."""

from dataclasses import replace

import pytest

from autotune.configuration.job import Measure
from autotune.values.outcome import Inspected, Measured
from covering import covers
from factories import cpu_machine
from scripted_runner import FACTS, ScriptedRunner, at, batch_of, events_of, trials_of, unstored_in

MANY = "batch_size: [8, 16, 32, 64, 128, 256, 512, 1024]\n"
WORKERS = "num_workers: [0, 1]\n"


@covers("U12")
def test_batches_that_would_not_fit_into_shared_memory_are_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr("autotune.searching.trials.trials.free_shared_bytes", lambda: 1 << 20)
    facts = replace(FACTS, sample_bytes=1 << 12)
    runner = ScriptedRunner(inspected=Inspected(cpu_machine(), facts))
    space = "batch_size: [8, 64]\nnum_workers: [0, 2]\n"
    trials = trials_of(events_of(unstored_in(tmp_path, space=space, trials=4), runner))
    reasons = {
        (batch_of(t.config), t.config["num_workers"]): t.verdict.reason
        for t in trials
        if not t.verdict.feasible
    }
    assert list(reasons) == [(64, 2)]
    assert "take 1 MiB of /dev/shm, where 1 MiB are free" in reasons[64, 2]


def test_the_child_is_told_how_fast_the_best_trial_surely_is(tmp_path):
    plans = []

    class Remembering(ScriptedRunner):
        def run(self, job, folder):
            if "confirm" not in folder.parts and isinstance(job.task, Measure):
                plans.append(job.task.plan)
            return super().run(job, folder)

    runner = Remembering(lambda config, phase: at(10 * batch_of(config)))
    trials = trials_of(events_of(unstored_in(tmp_path), runner))
    incumbents = [p.incumbent_seconds_per_sample for p in plans if p.block_counts[-1] == 25]
    best = [max(t.verdict.value for t in trials[: n + 1]) for n in range(len(trials) - 1)]
    assert incumbents == [None, None, None, *[1 / value for value in best]]


def test_a_trial_that_was_given_up_is_put_to_the_test_where_it_may_be_the_fastest(tmp_path):
    def given_up(config, phase):
        outcome = at(10 * batch_of(config))
        if batch_of(config) == 128 and phase == "trial":
            return Measured(replace(outcome.measurement, flags=("stopped_early",)))
        return outcome

    runner = ScriptedRunner(given_up)
    events = events_of(unstored_in(tmp_path), runner)
    assert events[-1].best.config["batch_size"] == 128
    stopped = [t for t in trials_of(events) if "stopped_early" in t.details.measurement.flags]
    assert [t.verdict.value for t in stopped] == [1280], "the sampler still learns from it"


def test_a_graph_that_is_compiled_again_and_again_cannot_win(tmp_path):
    def never_steady(config, phase):
        outcome = at(10 * batch_of(config))
        flags = ("recompiled", "unsteady") if batch_of(config) == 128 else ()
        return Measured(replace(outcome.measurement, flags=flags))

    events = events_of(unstored_in(tmp_path), ScriptedRunner(never_steady))
    assert events[-1].best.config["batch_size"] == 64
    (trial,) = (one for one in trials_of(events) if batch_of(one.config) == 128)
    assert not trial.verdict.feasible
    assert trial.verdict.reason.startswith("its speed never settled")


def test_scores_are_comparable_though_the_machine_slows_down(tmp_path):
    runner = ScriptedRunner()

    def slowing(config, phase):
        late = phase in ("trial", "anchor") and len(runner.batches("trial")) >= 8
        return at(50 if late else 100)

    runner.measure = slowing
    trials = trials_of(events_of(unstored_in(tmp_path, space=MANY + WORKERS, trials=14), runner))
    drift_checks = [at for at, asked in enumerate(runner.asked) if asked.phase == "anchor"]
    timed = [asked.phase for asked in runner.asked[: drift_checks[0]]]
    assert timed.count("trial") == 8, "which took eight times as long as it does"
    assert len(drift_checks) <= 2
    late = [t for t in trials if t.details.measurement.machine_speed == 0.5]
    assert late
    assert {t.verdict.value for t in late} == {100}
    assert {t.details.samples_per_second for t in late} == {50}, "the raw rate is kept"


def test_the_numbers_of_a_trial_read_well_and_its_blocks_are_exact(tmp_path):
    def uneven(config, phase):
        return at(100 * batch_of(config) / 7)

    trials = trials_of(events_of(unstored_in(tmp_path), ScriptedRunner(uneven)))
    for attributes in (trial.details.as_attributes() for trial in trials):
        told = {**attributes, **attributes["details"]}
        names = {name for name in told if name.endswith("seconds")} | {"samples_per_second"}
        numbers = [f"{told[name]!r}".replace(".", "").strip("0") for name in names]
        assert max(map(len, numbers)) <= 6
    seconds = trials[0].details.measurement.blocks[0].seconds
    assert seconds == 32 / (100 * batch_of(trials[0].config) / 7)


@pytest.mark.parametrize(
    ("rates", "precision"), [((100, 100, 100), 0.02), ((100, 105, 95), 0.05), ((100, 100, 55), 0.1)]
)
def test_a_trial_is_timed_no_finer_than_processes_differ_or_a_tenth(rates, precision, tmp_path):
    runs = iter(rates)
    runner = ScriptedRunner(lambda config, phase: at(next(runs) if phase == "baseline" else 100))
    events_of(unstored_in(tmp_path, trials=2), runner)
    jobs = zip(runner.jobs, runner.asked, strict=True)
    (plan,) = [job.task.plan for job, asked in jobs if asked.phase == "trial"]
    assert plan.precision == pytest.approx(precision, rel=0.01)
