"""A search answers with reasons, from measurements that are known beforehand."""

import re
from dataclasses import replace
from random import Random

import optuna
import pytest

from autotune.configuration.best_config import facts, keep_reason, read_best
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import CandidateRefused
from autotune.values import outcome as outcomes
from autotune.values.errors import UsageError
from autotune.values.measurement import Noise
from covering import covers
from factories import GIB, cpu_machine, measurement
from scripted_runner import (
    FACTS,
    ScriptedRunner,
    at,
    batch_of,
    changed,
    events_of,
    in_proportion,
    options_in,
    trials_of,
    unstored_in,
)


def answer_of(folder, runner, **changes):
    last = events_of(unstored_in(folder, **changes), runner)[-1]
    assert read_best(folder / "best.yaml") == last.best
    return last


def reasons(events):
    """Batch size to why it cannot win, for every infeasible trial."""
    ended = trials_of(events)
    return {batch_of(t.config): t.verdict.reason for t in ended if not t.verdict.feasible}


def test_the_fastest_configuration_is_the_answer(tmp_path):
    best = answer_of(tmp_path, ScriptedRunner(in_proportion)).best
    assert best.config["batch_size"] == 128
    assert best.evidence.speedup.ratio == 16
    assert best.evidence.baseline.config["batch_size"] == 8


def test_a_setting_that_is_left_out_keeps_the_users_value(tmp_path):
    options = unstored_in(tmp_path, "batch_size: [8, 64]\ngc: [null, frozen]\n", trials=3)
    left = changed(options, without=("batch_size",))
    ended = trials_of(events_of(left, ScriptedRunner(in_proportion)))
    assert len(ended) > 1
    assert {batch_of(trial.config) for trial in ended} == {8}


def test_a_setting_to_leave_out_that_the_space_does_not_vary_is_refused(
    tmp_path,
):
    runner = ScriptedRunner(in_proportion)
    said = r"--without gcc: the search space space does not vary it\. Name one of batch_size, gc\."
    with pytest.raises(UsageError, match=f"{said}.*'gc'"):
        events_of(unstored_in(tmp_path, "batch_size: [8]\ngc: [null]\n", without=("gcc",)), runner)


def test_the_settings_are_kept_if_all_differences_are_noise(tmp_path):
    random = Random(1)
    runner = ScriptedRunner(lambda config, phase: at(100 * random.lognormvariate(0, 0.05)))
    best = answer_of(tmp_path, runner).best
    assert best.keeps_baseline
    assert best.config["batch_size"] == 8
    assert best.evidence.speedup.ratio == 1
    assert not [fact for fact in facts(best) if "->" in fact[1]], "nothing changes"
    assert runner.batches("confirmation"), "something looked faster and was put to the test"


def test_the_claimed_speedup_is_that_of_the_confirmation(tmp_path):
    def lucky_once(config, phase):
        return at(100 if batch_of(config) == 8 else 1000 if phase == "trial" else 120)

    best = answer_of(tmp_path, ScriptedRunner(lucky_once)).best
    assert best.evidence.speedup.ratio == 1.2
    assert best.evidence.best.samples_per_second == 120


def test_baseline_and_candidate_take_turns_at_going_first(tmp_path):
    runner = ScriptedRunner(in_proportion)
    answer_of(tmp_path, runner)
    batches = runner.batches("confirmation")
    assert len(batches) == 8
    assert all(batches[n : n + 4] in ([8, 128, 128, 8], [128, 8, 8, 128]) for n in (0, 4))


def test_a_candidate_that_does_not_hold_makes_room_for_the_next(tmp_path):
    def only_lucky(config, phase):
        return at(50) if phase != "trial" and batch_of(config) == 128 else in_proportion(config, "")

    events = events_of(unstored_in(tmp_path), ScriptedRunner(only_lucky))
    (refused,) = [event for event in events if isinstance(event, CandidateRefused)]
    assert batch_of(refused.trial.config) == 128
    assert refused.reason == "slower: 0.625 to 0.625 times as fast as your settings"
    assert events[-1].best.config["batch_size"] == 64


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        (outcomes.OutOfMemory("host", "no more", 9 * GIB), "out of host memory"),
        (outcomes.Crashed("killed by SIGSEGV"), "SIGSEGV"),
        (outcomes.Measured(measurement(1000, peak_bytes=9 * GIB)), "over the limit"),
    ],
)
def test_a_candidate_that_fails_in_the_confirmation_is_refused(late, reason, tmp_path):
    def fails_late(config, phase):
        failing = phase == "confirmation" and batch_of(config) == 128
        return late if failing else in_proportion(config, phase)

    events = events_of(unstored_in(tmp_path), ScriptedRunner(fails_late))
    (refused,) = [event for event in events if isinstance(event, CandidateRefused)]
    assert reason in refused.reason
    best = events[-1].best
    assert best.config["batch_size"] == 64
    (missed,) = best.evidence.not_confirmed
    assert (missed.changed, missed.reason) == ({"batch_size": 128}, refused.reason)


def test_nothing_is_said_of_the_speed_of_a_candidate_that_could_not_be_timed_again(tmp_path):
    def ends_early(config, phase):
        if batch_of(config) == 128 and phase == "confirmation":
            return outcomes.Crashed("it ended after 351 steps, too few to be timed")
        return at(100 if batch_of(config) == 128 else 80 - batch_of(config) / 2)

    best = answer_of(tmp_path, ScriptedRunner(ends_early)).best
    assert best.keeps_baseline
    said = keep_reason(best.evidence)
    assert "beyond the noise" not in said
    assert said.endswith("1 that was faster in the trials could not be confirmed.")
    assert "(batch_size=128) was faster in the search: it ended" in dict(facts(best))["unconfirmed"]


@pytest.mark.parametrize(
    "failure",
    [
        outcomes.OutOfMemory("device", "CUDA out of memory", 9 * GIB),
        outcomes.TimedOut("start", 24.0),
    ],
)
def test_the_region_without_enough_memory_or_time_is_not_entered_twice(failure, tmp_path):
    def bounded(config, phase):
        if batch_of(config) > 100:
            return failure
        return in_proportion(config, phase)

    runner = ScriptedRunner(bounded)
    space = "batch_size: {low: 8, high: 8000, step: 8}\n"
    best = answer_of(tmp_path, runner, space=space, trials=40).best
    too_large = [batch for batch in runner.batches("trial") if batch > 100]
    assert too_large, "or nothing is shown"
    assert too_large == sorted(too_large, reverse=True)
    assert 8 < best.config["batch_size"] <= 100


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_larger_batches_than_one_of_which_seeds_showed_a_loss_are_not_tried(seed, tmp_path):
    """Beside others of its precision: layout and order of sums make no difference to a seed."""
    sizes = 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512
    space = f"batch_size: [{', '.join(map(str, sizes))}]\nchannels_last: [false, true]\n"
    facts = replace(FACTS, image_batches=True)

    def quality(config, seed):
        return 0.9 if batch_of(config) <= 16 else 0.5

    runner = ScriptedRunner(
        in_proportion, quality=quality, inspected=outcomes.Inspected(cpu_machine(), facts)
    )
    best = answer_of(tmp_path, runner, space=space, trials=24, seed=seed).best
    assert best.config["batch_size"] == 16
    asked = [(one.phase, one.batch_size or 0) for one in runner.asked]
    refused = [n for n, (phase, size) in enumerate(asked) if phase == "accuracy" and size > 16]
    assert refused, "or nothing is shown"
    for number in refused:
        later = [size for phase, size in asked[number:] if phase == "trial"]
        assert max(later, default=0) < asked[number][1]


@pytest.mark.parametrize(
    "failure",
    [
        outcomes.Crashed("killed by SIGSEGV"),
        outcomes.TimedOut("measure", 60.0),
        outcomes.NotApplied("num_threads", "1", "2"),
        outcomes.UserError("ValueError: too large", "model.py:7"),
        outcomes.Measured(measurement(10_000, peak_bytes=9 * GIB)),
    ],
)
def test_a_configuration_that_fails_cannot_win(failure, tmp_path):
    runner = ScriptedRunner(
        lambda config, phase: failure if batch_of(config) == 128 else in_proportion(config, phase)
    )
    events = events_of(unstored_in(tmp_path), runner)
    assert list(reasons(events)) == [128]
    assert events[-1].best.config["batch_size"] == 64


@covers("U15")
def test_the_settings_are_kept_if_all_others_train_worse_and_each_says_by_how_much(tmp_path):
    def worse(config, seed):
        return 0.95 if batch_of(config) == 8 else 0.5

    events = events_of(unstored_in(tmp_path), ScriptedRunner(in_proportion, quality=worse))
    assert events[-1].best.keeps_baseline
    assert reasons(events)
    assert all(re.search(r"is [\d.]+, minimum [\d.]+ \(", r) for r in reasons(events).values())


@covers("C11")
@pytest.mark.parametrize("space", ["{}\n", "batch_size: [8]\n"])
def test_the_settings_are_measured_and_kept_if_nothing_can_be_searched(space, tmp_path):
    runner = ScriptedRunner(in_proportion)
    events = events_of(unstored_in(tmp_path, space=space), runner)
    assert events[-1].best.keeps_baseline
    assert runner.batches("baseline") == [8, 8, 8]
    assert runner.batches("trial") == []


def test_without_evaluate_a_higher_loss_cannot_win(tmp_path):
    runner = ScriptedRunner(in_proportion, lambda config, seed: batch_of(config) / 10)
    runner.inspected = replace(
        runner.inspected, workload=replace(runner.inspected.workload, has_evaluate=False)
    )
    best = answer_of(tmp_path, runner).best
    assert best.keeps_baseline
    assert best.constraints.accuracy.metric == "held_out_loss"


def test_a_configuration_that_trains_worse_with_other_seeds_is_refused(tmp_path):
    def lucky_seed(config, seed):
        return 0.5 if batch_of(config) == 128 and seed > 0 else 0.95

    first = (TrainingConfig.of({"batch_size": 128}),)
    options = options_in(tmp_path, warm_start=first, accuracy_samples=1)
    runner = ScriptedRunner(in_proportion, lucky_seed, seed_seconds=0.01)
    events = events_of(options, runner)
    ended = trials_of(events)
    (refused,) = [trial for trial in ended if batch_of(trial.config) == 128]
    assert refused.verdict.reason.startswith("evaluate is ")
    assert events[-1].best.config["batch_size"] == 64
    study = optuna.load_study(study_name="scripted", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert study.best_trial.params["batch_size"] == 64


@covers("U15")
def test_a_baseline_below_the_floor_is_nothing_feasible(tmp_path):
    events = events_of(unstored_in(tmp_path, min_accuracy=0.95), ScriptedRunner(in_proportion))
    assert next(iter(events[-1].reasons)).startswith("your settings: evaluate is ")
    assert not (tmp_path / "best.yaml").exists()


def test_the_answer_says_how_many_of_its_blocks_were_disturbed(tmp_path):
    def beside_others(config, phase):
        run = at(10 * batch_of(config)).measurement
        if phase == "confirmation" and batch_of(config) == 8:
            busy = tuple(replace(block, noise=Noise(foreign=0.5)) for block in run.blocks)
            run = replace(run, blocks=busy)
        return outcomes.Measured(run)

    blocks = answer_of(tmp_path, ScriptedRunner(beside_others)).best.evidence.blocks
    assert blocks.disturbed == blocks.timed // 2 > 0
