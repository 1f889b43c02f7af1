"""Failures and left-out values count for all devices; a search in which nothing works ends."""

import threading

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.process.devices import Device
from autotune.searching.search import search
from autotune.searching.trials.trials import Breaker
from autotune.study.knowledge import Knowledge
from autotune.values.errors import TooManyLostError
from autotune.values.outcome import Crashed
from covering import covers
from scripted_runner import ScriptedRunner, at, batch_of, left_out, trials_of, unstored_in
from study_factories import CRASHED, HOLDS, OOM, SMALL, trial

MARGINS = {"measured": HOLDS, "out_of_memory": OOM, "crashed": CRASHED}
THREADS, TRIALS = 4, 50


def ended(outcome, reason="", foreseen=False):
    value = 1.0 if outcome == "measured" else None
    return trial(1, value, MARGINS[outcome], reason, outcome=outcome, foreseen=foreseen)


def test_a_measured_trial_begins_the_count_anew():
    breaker = Breaker(2)
    for _ in range(5):
        breaker.finished(ended("crashed", "first"))
        breaker.finished(ended("measured"))
    breaker.finished(ended("crashed", "last but one"))
    with pytest.raises(TooManyLostError, match="2 trials in a row") as caught:
        breaker.finished(ended("crashed", "last"))
    assert "first" not in str(caught.value)


@pytest.mark.parametrize("foreseen", [True, False])
def test_running_out_of_memory_neither_counts_nor_begins_the_count_anew(foreseen):
    breaker = Breaker(2)
    for _ in range(5):
        breaker.finished(ended("out_of_memory", "too large", foreseen))
    breaker.finished(ended("crashed", "first"))
    breaker.finished(ended("out_of_memory", "too large", foreseen))
    with pytest.raises(TooManyLostError, match="2 trials in a row") as caught:
        breaker.finished(ended("crashed", "second"))
    assert "too large" not in str(caught.value)


def test_lost_trials_are_counted_on_their_own():
    breaker = Breaker(8)
    breaker.lost("disk full")
    breaker.lost("disk full")
    breaker.finished(ended("crashed"))
    breaker.lost("disk full")
    breaker.lost("disk full")
    with pytest.raises(TooManyLostError, match="disk full"):
        breaker.lost("disk full")


@pytest.mark.usefixtures("restless")
def test_each_trial_of_several_threads_is_counted_once():
    breaker, failed = Breaker(THREADS * TRIALS), []

    def fail():
        for _ in range(TRIALS):
            try:
                breaker.finished(ended("crashed", "x"))
            except TooManyLostError as error:
                failed.append(error)

    threads = [threading.Thread(target=fail) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 1


SPACE = "batch_size: [8, 16, 32, 64, 128]\nnum_workers: [0, 1, 2, 3]\n"
MANY = 201


def compiled(config, mode):
    """With a way to compile that there is not, of which there are as many as wanted."""
    values = {**config.as_dict(), "compile_mode": mode}
    return TrainingConfig(tuple(values.values()))


@pytest.mark.usefixtures("restless")
def test_finished_trials_and_broken_modes_are_whole_while_more_come():
    knowledge, learning = Knowledge(), threading.Event()
    knowledge.learn(trial(0))

    def learn():
        try:
            for number in range(1, MANY):
                config = compiled(SMALL, f"mode {(number - 1) // 2}")  # each fails twice
                knowledge.learn(trial(number, None, CRASHED, config=config))
        finally:
            learning.set()

    thread = threading.Thread(target=learn)
    thread.start()
    most, broken = 0, 0
    while not learning.is_set():
        seen, out = list(knowledge.finished), knowledge.left_out()
        assert [trial.number for trial in seen] == list(range(len(seen)))
        assert (len(seen), len(out)) >= (most, broken)
        most, broken = len(seen), len(out)
    thread.join()
    assert len(knowledge.finished) == MANY
    assert len(knowledge.left_out()) == MANY // 2


@covers("R15")
def test_failures_of_all_devices_count_together(tmp_path):
    """One for each device may run when the last of them is told."""

    def breaks(config, phase):
        return Crashed("killed by SIGSEGV") if phase == "trial" else at(100)

    first, second = ScriptedRunner(breaks), ScriptedRunner(breaks)
    options = unstored_in(tmp_path, space=SPACE, trials=20, max_failures=4, at_once=2)
    with pytest.raises(TooManyLostError, match="trials in a row failed"):
        list(search(options, first, None, {Device("xpu:1"): second}))
    tried = len(first.batches("trial")) + len(second.batches("trial"))
    assert 4 <= tried <= 5


def test_a_mode_that_is_left_out_on_all_devices_is_said_once(tmp_path):
    def breaks(config, phase):
        if config["compile_mode"] == "default" and phase == "trial":
            return Crashed("the compiler crashed")
        return at(10 * batch_of(config))

    space = "batch_size: [8, 16, 32, 64]\ncompile_mode: [null, default]\n"
    runners = ScriptedRunner(breaks), ScriptedRunner(breaks)
    own = {"batch_size": 32}
    options = unstored_in(tmp_path, space=space, trials=12, baseline=own, at_once=2)
    events = list(search(options, runners[0], None, {Device("xpu:1"): runners[1]}))
    assert len(left_out(events)) == 1
    tried = [trial.config["compile_mode"] for trial in trials_of(events)]
    assert tried.count("default") in {2, 3}
