"""A search keeps to its time, uses all of it, and says nothing that it had no time to measure."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import yaml

from autotune.process.stop import Stop
from autotune.searching.run.events import Noted, TrialEnded
from autotune.searching.search import search
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.outcome import Inspected, Measured, NotApplied, OutOfMemory, TimedOut
from factories import cuda_machine, measurement, written
from scripted_runner import (
    FACTS,
    ScriptedRunner,
    at,
    batch_of,
    changed,
    events_of,
    options_in,
    trials_of,
    unstored_in,
)
from search_clock import TimedRunner, timed_runner
from stored_study import as_json, report

SPACE = "batch_size: [8, 16, 24, 32, 48, 64, 96, 128]\nnum_workers: [0, 1]\n"


@pytest.fixture
def timed(monkeypatch):
    """A runner whose clock is that of the search."""

    return partial(timed_runner, monkeypatch)


def options_with(folder, seconds, space=SPACE, **changes):
    changes = {"trials": 50, "time_budget_seconds": seconds, **changes}
    return unstored_in(folder, space, **changes)


def larger_is_faster(config, phase):
    return at(100 + batch_of(config))


@pytest.mark.parametrize(
    ("is_stopped", "ends"), [(False, NotSearchedEnoughError), (True, KeyboardInterrupt)]
)
def test_who_stopped_a_search_is_not_told_of_the_time_that_it_lacks(
    is_stopped, ends, timed, tmp_path
):
    stop = Stop()

    def measure(config, phase):
        if is_stopped:
            stop.request()
        return at(100)

    runner = timed(measure=measure, seconds=lambda config, phase: 60.0)
    with pytest.raises(ends):
        list(search(options_with(tmp_path, 70.0), runner, stop))


@pytest.mark.parametrize("budget", [240.0, 300.0, 600.0])
def test_as_long_as_there_is_no_candidate_all_the_time_is_for_trials(budget, timed, tmp_path):
    runner = timed(seconds=lambda config, phase: 10.0)
    trials, last, events = -1, 0.0, []
    for event in search(options_with(tmp_path, budget), runner):
        events.append(event)
        if isinstance(event, TrialEnded):
            trials, last = trials + 1, runner.elapsed
    assert events[-1].best.keeps_baseline
    assert trials == 15 or budget - 20 < last <= budget, "all, or all the time"
    searched = events[-1].best.evidence.searched
    assert searched.measured == trials


def test_a_candidate_is_confirmed_within_the_time_and_a_round(timed, tmp_path):
    answers = []
    for budget in range(130, 300, 34):
        runner = timed(measure=larger_is_faster, seconds=lambda config, phase: 5.0)
        space = "batch_size: [8, 16, 32, 64, 96, 128]\n"
        options = options_with(tmp_path / str(budget), float(budget), space)
        with suppress(NotSearchedEnoughError):
            events = events_of(options, runner)
            assert not events[-1].best.keeps_baseline, budget
            answers.append(budget)
        assert runner.elapsed <= budget + 2 * 5.0, budget
    assert len(answers) > 3, answers


def test_a_gpu_has_time_to_try_the_kernels_of_convolutions(timed, tmp_path):
    """On an H200 the first step of ResNet-50 took 19 s, in a search of 165 s."""
    runner = timed(measure=larger_is_faster, inspected=Inspected(cuda_machine(), FACTS))
    space = "batch_size: [8, 16]\ncudnn_benchmark: [false, true]\n"
    events_of(options_with(tmp_path, 400.0, space), runner)
    longest = {
        bool(job.config["cudnn_benchmark"]): job.deadline_seconds
        for job, asked in zip(runner.jobs, runner.asked, strict=True)
        if asked.phase == "trial"
    }
    assert longest[True] - longest[False] > 30


def test_a_first_process_that_took_long_leaves_time_for_trials(timed, tmp_path):
    """As where a GPU's libraries are read from disk, and kernels chosen, for the first time."""

    def is_first(phase):
        return phase == "trial" and len(runner.batches("trial")) == 1

    def rate(config, phase):
        run = measurement(100 * (1.4 if config["num_workers"] else 1))
        return Measured(replace(run, warmup_step_seconds=(17.0, 0.1)) if is_first(phase) else run)

    def seconds(config, phase):
        return 20.0 if is_first(phase) else 3.0

    runner = timed(measure=rate, seconds=seconds)
    space = "num_workers: [0, 1]\nprefetch_factor: [2, 4]\npersistent_workers: [false, true]\n"
    options = options_with(tmp_path, 180.0, space + "num_threads: [1, 2]\n")
    *_, last = events_of(options, runner)
    phases = [asked.phase for asked in runner.asked]
    assert not last.best.keeps_baseline
    assert phases.count("trial") == 9, "all of them"
    assert runner.elapsed <= 180.0


def best_of_two_gains(timed, folder, budget, by_workers, by_batch, **script):
    """Search where workers need no seeds and a larger batch does, each of which takes 7 s."""

    def rate(config, phase):
        larger = by_batch if batch_of(config) > 8 else 1
        return at(100 * larger * (by_workers if config["num_workers"] else 1))

    def seconds(config, phase):
        seeds = 7.0 * len(runner.asked[-1].seeds)
        return {"accuracy": seeds, "diagnosis": 5.0, "confirmation": 4.5}.get(phase, 3.0)

    runner = timed(measure=rate, seconds=seconds, seed_seconds=7.0, **script)
    space = "batch_size: [8, 16, 32, 64, 128, 256]\nnum_workers: [0, 1]\nprefetch_factor: [2, 4]\n"
    options = options_with(folder, budget, space + "num_threads: [1, 2]\n")
    *_, last = events_of(options, runner)
    assert runner.elapsed <= budget + 9.0, "and a round"
    return last.best.config


@pytest.mark.parametrize("budget", [130.0, 160.0, 180.0])
def test_seeds_that_decide_nothing_leave_the_time_to_confirm_what_needs_none(
    budget, timed, tmp_path
):
    def quality(config, seed):
        return 0.9 - (0.018 * (seed % 2) if batch_of(config) > 8 else 0.0)

    best = best_of_two_gains(timed, tmp_path, budget, 1.6, 1.3, quality=quality)
    assert (best["num_workers"], best["batch_size"]) == (1, 8)


@pytest.mark.parametrize("budget", [140.0, 160.0, 180.0])
def test_a_candidate_that_needs_seeds_is_not_given_up_for_one_that_gains_hardly_anything(
    budget, timed, tmp_path
):
    assert best_of_two_gains(timed, tmp_path, budget, 1.1, 1.9)["batch_size"] > 8


def test_a_first_process_that_is_slow_for_once_does_not_refuse_the_search(timed, tmp_path):
    def rate(config, phase):
        is_first = [asked.phase for asked in runner.asked].count("baseline") == 1
        run = measurement(100.0 + batch_of(config))
        return Measured(replace(run, start_seconds=24.0) if is_first else run)

    runner = timed(measure=rate, seconds=lambda config, phase: 3.0)
    *_, last = events_of(options_with(tmp_path, 150.0), runner)
    assert not last.best.keeps_baseline


@pytest.mark.parametrize("hanging", ["num_workers", "batch_size", "everything but the baseline"])
def test_a_hanging_trial_takes_no_more_than_the_time_that_is_left(hanging, timed, tmp_path):
    def hangs(config):
        by_workers, by_batch = bool(config["num_workers"]), batch_of(config) > 32
        found = {"num_workers": by_workers, "batch_size": by_batch}
        return found.get(hanging, by_workers or batch_of(config) > 8)

    runner = timed(measure=larger_is_faster, hangs=hangs)
    options = options_with(tmp_path, 300.0, max_failures=50)
    with suppress(NotSearchedEnoughError):
        events_of(options, runner)
    assert runner.elapsed <= 300.0 + 2 * 5.0 + 30.0
    longest = max(job.deadline_seconds for job in runner.jobs)
    assert longest <= 300.0 / 4, "of one process"


def test_every_kind_of_process_may_take_no_more_than_is_left(timed, tmp_path):
    seen = {}

    class Watched(TimedRunner):
        def run(self, job, folder):
            left = max(200.0 - self.elapsed, 20.0 if job.task.kind == "measure" else 0.0)
            outcome = super().run(job, folder)
            seen.setdefault(self.asked[-1].phase, []).append(job.deadline_seconds - left)
            return outcome

    runner = timed(Watched, measure=larger_is_faster)
    events_of(options_with(tmp_path, 200.0, SPACE + "optimizer_impl: [null, fused]\n"), runner)
    assert {"inspection", "baseline", "diagnosis", "trial", "accuracy", "confirmation"} <= set(seen)
    assert {phase for phase, over in seen.items() if max(over) > 0.1} == set(), seen


def test_fewer_than_four_trials_back_no_keep_your_settings(timed, tmp_path, url):
    def seconds(config, phase):
        return 60.0 if phase == "trial" else 4.0

    runner = timed(seconds=seconds)
    options = options_with(tmp_path, 200.0, storage=url)
    with pytest.raises(NotSearchedEnoughError, match=r"[23] of 16 configurations were") as raised:
        events_of(options, runner)
    assert raised.value.exit_code == 9
    assert not options.study.out.exists()
    longer = changed(options, time_budget_seconds=raised.value.seconds)
    events = events_of(longer, timed(seconds=seconds))
    assert events[-1].best.keeps_baseline, "the same search goes on, with the time that was named"
    assert events[-1].best.evidence.searched.measured >= 4


def test_fewer_are_enough_where_fewer_were_asked_for_or_there_are_no_more(tmp_path):
    for space, trials in ((SPACE, 3), ("batch_size: [8, 16]\n", 50), ("batch_size: [8]\n", 50)):
        folder = tmp_path / str(trials) / str(len(space))
        folder.mkdir(parents=True)
        events = events_of(unstored_in(folder, space, trials=trials), ScriptedRunner())
        assert events[-1].best.keeps_baseline


def test_the_answer_says_which_part_of_the_space_it_rests_on(tmp_path):
    options = unstored_in(tmp_path, SPACE + "persistent_workers: [false, true]\n", trials=6)
    events = events_of(options, ScriptedRunner(larger_is_faster))
    searched = events[-1].best.evidence.searched
    trials = [trial.config for trial in trials_of(events)]
    assert (searched.configurations, searched.measured) == (8 * 3, 5)
    assert set(searched.tried["batch_size"]) == {batch_of(config) for config in trials}
    told = yaml.safe_load(options.study.out.read_text())["evidence"]["searched"]
    assert told["tried"]["batch_size"] == sorted(told["tried"]["batch_size"])
    for name in ("num_workers", "persistent_workers"):
        values = {
            config[name] for config in trials if name == "num_workers" or config["num_workers"]
        }
        assert (name in told["never_varied"]) == (len(values) < 2)


def test_the_report_says_so_too_also_before_there_is_an_answer(tmp_path):
    options = options_in(tmp_path, SPACE, trials=6)
    for ended in search(options, ScriptedRunner(larger_is_faster)):
        if isinstance(ended, TrialEnded) and ended.trial.number == 3:
            break
    source = tmp_path / "study.db"
    for measured in (3, 5):
        assert as_json(source)["searched"]["measured"] == measured
        assert f"  searched    {measured} of 16 configurations: " in report(source)
        events_of(options, ScriptedRunner(larger_is_faster))


COMPILING = (
    "batch_size: [8, 16, 32, 64]\ncompile_mode: [null, default, max-autotune-no-cudagraphs]\n"
)


@pytest.mark.parametrize(
    ("budget", "modes"),
    [(110.0, {None}), (170.0, {None, "default"}), (4000.0, {None, "default", "max-autotune"})],
)
def test_a_mode_that_takes_too_long_to_compile_is_not_tried(budget, modes, timed, tmp_path):
    def measure(config, phase):
        mode = config["compile_mode"]
        run = measurement(400.0 if mode else 100.0 + batch_of(config))
        return Measured(replace(run, compile_seconds=20.0 if mode else 0.0))

    runner = timed(measure=measure, seconds=lambda config, phase: 2.0)
    options = options_with(tmp_path, budget, COMPILING)
    trials = trials_of(search(options, runner))
    tried = {str(trial.config["compile_mode"])[:12] for trial in trials}
    assert tried == {str(mode)[:12] for mode in modes}


def test_the_seconds_of_a_trial_a_round_and_a_seed_are_told(timed, tmp_path):
    runner = timed(seconds=lambda config, phase: 9.0, seed_seconds=7.0)
    events = events_of(unstored_in(tmp_path), runner)
    costs, *_ = (event.text for event in events if isinstance(event, Noted))
    timing = 0.7 + 6 * 0.32  # steps of the warm-up and blocks
    a_round = 2 * (9.0 - 6 * 0.32 + 1.5)  # a new interpreter would take 9 s
    assert costs == (
        f"a trial takes about 9 s (start {9.0 - timing:.1f}, timing {timing:.1f}), "
        f"a confirmation round {a_round:.0f} s, a short training 9 s"
    ), "with the start of its process"


def test_a_candidate_that_the_end_of_the_time_cuts_off_is_no_keep_your_settings(timed, tmp_path):
    def seconds(config, phase):
        return 14.0 if config is not None and batch_of(config) > 8 else 3.0

    answers = set()
    for budget in range(110, 210, 10):
        before = written(tmp_path / str(budget), "of an earlier search", "best.yaml")
        runner = timed(measure=larger_is_faster, seconds=seconds)
        options = options_with(before.parent, float(budget), "batch_size: [8, 128]\n")
        try:
            answers.add(events_of(options, runner)[-1].best.keeps_baseline)
        except NotSearchedEnoughError:
            assert before.read_text() == "of an earlier search"
    assert answers == {False}


def test_a_candidate_that_lacks_seeds_is_told_so(timed, tmp_path):
    def seconds(config, phase):
        return 40.0 * len(runner.asked[-1].seeds) if phase == "accuracy" else 5.0

    runner = timed(measure=larger_is_faster, seconds=seconds, seed_seconds=40.0)
    options = options_with(tmp_path, 180.0, "batch_size: [8, 16, 32, 64, 96, 128]\n")
    with pytest.raises(NotSearchedEnoughError, match="that and its accuracy were confirmed"):
        events_of(options, runner)


@pytest.mark.parametrize("trials", [1, 50])
def test_few_trials_are_enough_if_the_space_and_not_the_time_ends_the_search(trials, tmp_path):
    def measure(config, phase):
        return at(100) if batch_of(config) < 32 else OutOfMemory("host", "too large", 2 << 30)

    options = unstored_in(tmp_path, trials=trials)
    best = events_of(options, ScriptedRunner(measure))[-1].best
    assert best.keeps_baseline
    searched = best.evidence.searched
    assert (searched.measured, searched.failed) == ((0, 0) if trials == 1 else (1, 2))


def test_seeds_that_take_long_are_no_fault_of_the_workload(timed, tmp_path):
    def seconds(config, phase):
        return 50.0 * len(runner.asked[-1].seeds) if phase == "accuracy" else 5.0

    def quality(config, seed):
        return 0.9 - (0.02 if batch_of(config) > 8 and seed == 0 else 0.0)

    runner = timed(measure=larger_is_faster, seconds=seconds, quality=quality, seed_seconds=50.0)
    with suppress(NotSearchedEnoughError):
        events_of(options_with(tmp_path, 360.0), runner)
    assert runner.batches("trial")


def test_a_numerics_check_that_is_cut_off_is_made_again_with_more_time_alone(timed, tmp_path, url):
    cut_off = []
    space = "batch_size: [8]\noptimizer_impl: [null, fused]\nnum_workers: [0, 1, 2]\n"

    def measure(config, phase):
        return at(200.0 if config["optimizer_impl"] else 100.0)

    class Slow(TimedRunner):
        def run(self, job, folder):
            if job.task.kind == "gate" and job.deadline_seconds < 40.0:
                self.now += job.deadline_seconds
                cut_off.append(job.config)
                return TimedOut("gate", job.deadline_seconds)
            return super().run(job, folder)

    options = options_with(tmp_path, 150.0, space, storage=url)
    with suppress(NotSearchedEnoughError):
        assert not events_of(options, timed(Slow, measure=measure))[-1].best.keeps_baseline
    assert len(cut_off) == 1
    longer = changed(options, time_budget_seconds=1000.0)
    again = events_of(longer, timed(Slow, measure=measure))
    assert again[-1].best.config["optimizer_impl"]


COMPILED = "compile_mode: [null, default, max-autotune-no-cudagraphs]\nnum_threads: [1, 2]\n"


def modes_of(runner):
    jobs = zip(runner.jobs, runner.asked, strict=True)
    return {job.config["compile_mode"] for job, asked in jobs if asked.phase == "trial"}


def test_compiling_may_take_the_time_that_nothing_else_is_left_for(timed, tmp_path):
    def seconds(config, phase):
        return 23.0 if phase == "trial" and config and config["compile_mode"] else 3.0

    runner = timed(seconds=seconds)
    *_, last = events_of(options_with(tmp_path, 150.0, COMPILED), runner)
    assert "default" in modes_of(runner)
    assert last.best.keeps_baseline
    assert runner.elapsed <= 150.0 + 2 * 3.0


def test_training_that_stays_eager_in_one_compile_mode_is_not_compiled_in_another(timed, tmp_path):
    def outcome(config, phase):
        mode = config["compile_mode"]
        return NotApplied("compile_mode", str(mode), "null") if mode else at(100)

    runner = timed(measure=outcome)
    *_, last = events_of(options_with(tmp_path, 900.0, COMPILED), runner)
    assert len(modes_of(runner) - {None}) == 1
    assert last.best.keeps_baseline


@pytest.mark.parametrize(
    ("each_round", "lost", "rounds", "most_seconds"),
    [
        # Four rounds decide no more, and nine may.
        *((6.5, (2,), 9, 1.1 * 160 + 15), (6.5, (2, 4), None, 160 + 13)),
        # Rounds take longer than they were estimated.
        (9.0, (2,), None, 1.1 * 160 + 18),
        *((14.0, (), 4, 1.1 * 160 + 28), (20.0, (), None, 1.1 * 160 + 40)),
    ],
)
def test_rounds_that_a_candidate_can_win_are_finished_a_tenth_past_the_budget(
    each_round, lost, rounds, most_seconds, timed, tmp_path
):
    confirmed = []

    def rate(config, phase):
        if phase == "confirmation" and batch_of(config) > 8:
            confirmed.append(batch_of(config))
            return at(90 if len(confirmed) in lost else 200)
        return larger_is_faster(config, phase)

    def seconds(config, phase):
        return each_round if phase == "confirmation" else 5.0

    budget = 160.0
    runner = timed(measure=rate, seconds=seconds)
    options = options_with(tmp_path, budget, "batch_size: [8, 16, 32, 64, 96, 128]\n")
    if rounds is None:
        with pytest.raises(NotSearchedEnoughError):
            events_of(options, runner)
    else:
        best = events_of(options, runner)[-1].best
        assert (best.keeps_baseline, best.evidence.speedup.rounds) == (False, rounds)
        assert runner.elapsed > budget
    assert runner.elapsed <= most_seconds, "and a round"
