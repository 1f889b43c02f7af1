"""A person asks to stop: what is running is finished, what comes next is not begun."""

import re
import subprocess

import pytest
import yaml

from autotune.configuration.best_config import read_best
from autotune.configuration.job import Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.process.stop import Stop
from autotune.searching.search import search
from autotune.values.errors import StorageError, TooManyLostError, UsageError
from autotune.values.outcome import Crashed, NonFinite, NotApplied, OutOfMemory
from covering import covers
from scripted_runner import (
    ScriptedRunner,
    at,
    batch_of,
    changed,
    events_of,
    in_proportion,
    left_out,
    options_in,
    trials_of,
    unstored_in,
)


class Stopping(ScriptedRunner):
    """Someone presses Ctrl-C once while the nth process of a phase runs."""

    def __init__(self, phase, number):
        super().__init__(in_proportion)
        self.phase, self.number, self.stop = phase, number, Stop()

    def run(self, job, folder):
        outcome = super().run(job, folder)
        if len(self.batches(self.phase)) == self.number:
            self.stop.request()
        return outcome


def stopped(tmp_path, phase, number):
    runner, events = Stopping(phase, number), []
    with pytest.raises(KeyboardInterrupt):
        events += search(options_in(tmp_path), runner, runner.stop)
    return runner


@covers("R1")
def test_the_running_trial_is_finished_and_kept(tmp_path):
    stopped_at = stopped(tmp_path, "trial", 2)
    assert len(stopped_at.batches("trial")) == 2
    resumed = ScriptedRunner(in_proportion)
    events_of(options_in(tmp_path), resumed)
    assert sorted(stopped_at.batches("trial") + resumed.batches("trial")) == [16, 32, 64, 128]


@covers("R1")
@pytest.mark.parametrize(("phase", "number"), [("baseline", 2), ("confirmation", 3)])
def test_elsewhere_the_running_process_is_the_last_one(phase, number, tmp_path):
    runner = stopped(tmp_path, phase, number)
    assert runner.asked[-1].phase == phase
    assert len(runner.batches(phase)) == number
    assert not (tmp_path / "best.yaml").exists()
    events_of(options_in(tmp_path), ScriptedRunner(in_proportion))
    assert (tmp_path / "best.yaml").exists()


def test_the_fastest_trial_so_far_is_written_and_never_taken_for_the_answer(tmp_path):
    stopped(tmp_path, "confirmation", 1)
    path = tmp_path / "best-so-far.yaml"
    said = yaml.safe_load(path.read_text())
    assert said["unconfirmed"] is True
    assert said["config"]["batch_size"] == 128
    assert said["samples_per_second"] == 1280
    with pytest.raises(UsageError, match="never confirmed"):
        read_best(path)
    events_of(options_in(tmp_path), ScriptedRunner(in_proportion))
    assert not path.exists()


@covers("S3")
def test_a_study_that_is_deleted_meanwhile_ends_the_search_and_its_backup_is_named(tmp_path):
    class Deleting(ScriptedRunner):
        def run(self, job, folder):
            if len(self.batches("trial")) == 2:
                (tmp_path / "study.db").unlink(missing_ok=True)
            return super().run(job, folder)

    def slower(config, phase):  # so that no trial is probed, and is told as soon as it was timed
        return at(1000 / batch_of(config))

    events_of(options_in(tmp_path, trials=2), ScriptedRunner(slower))
    options = options_in(tmp_path)
    runner = Deleting(slower)
    with pytest.raises(StorageError, match="deleted while the search ran") as refused:
        events_of(options, runner)
    assert len(runner.batches("trial")) == 3
    (command,) = re.findall("`(rm .*?)`", str(refused.value))
    with pytest.raises(StorageError, match="is missing"):
        events_of(options, ScriptedRunner(slower))
    subprocess.run(command, shell=True, check=True)
    resumed = ScriptedRunner(slower)
    events_of(options, resumed)
    assert resumed.batches("baseline") == []
    assert len(resumed.batches("trial")) == 3, "those of the last run are lost"


@covers("R15")
def test_failure_after_failure_ends_the_search(tmp_path):
    def breaks(config, phase):
        return Crashed("killed by SIGSEGV") if phase == "trial" else at(100)

    space = "batch_size: [8, 16, 32, 64, 128]\nnum_workers: [0, 1, 2, 3]\n"
    options = options_in(tmp_path, space=space, trials=20, max_failures=4)
    runner = ScriptedRunner(breaks)
    with pytest.raises(TooManyLostError, match=r"4 x killed by SIGSEGV\n.*--max-failures") as ended:
        events_of(options, runner)
    assert ended.value.exit_code == 7
    assert len(runner.batches("trial")) == 4
    again = ScriptedRunner(breaks)
    with pytest.raises(TooManyLostError):
        events_of(options, again)
    assert not {a.folder.name for a in runner.asked} & {
        a.folder.name for a in again.asked if a.phase == "trial"
    }


def test_a_mode_of_compilation_that_never_works_is_left_out(tmp_path):
    def breaks(config, phase):
        if config["compile_mode"] == "default" and phase == "trial":
            return Crashed("the compiler crashed")
        if config["compile_mode"] == "lite" and config["batch_size"] > 16:
            return OutOfMemory("host", "too large", 1)
        return in_proportion(config, phase)

    space = "batch_size: [8, 16, 32, 64]\ncompile_mode: [null, default, lite]\n"
    runner = ScriptedRunner(breaks)
    own = {"batch_size": 32}
    events = events_of(unstored_in(tmp_path, space=space, trials=12, baseline=own), runner)
    tried = [trial.config["compile_mode"] for trial in trials_of(events)]
    assert tried.count("default") == 2
    assert tried.count("lite") > 2, "memory says nothing of the mode"
    (told,) = left_out(events)
    assert told.startswith("compile_mode=default")


def test_a_value_that_did_not_take_effect_is_not_tried_with_others(tmp_path):
    def ignores(config, phase):
        if phase == "trial" and config["optimizer_impl"]:
            return NotApplied("optimizer_impl", "fused", "null")
        return in_proportion(config, phase)

    space = "batch_size: [8, 16, 32, 64]\noptimizer_impl: [null, fused]\nnum_workers: [0, 1, 2]\n"
    options = options_in(tmp_path, space=space, trials=12)
    events = events_of(options, ScriptedRunner(ignores))
    trials = [trial.config for trial in trials_of(events)]
    assert sum(bool(config["optimizer_impl"]) for config in trials) == 1
    assert left_out(events) == ["optimizer_impl=fused, which did not take effect"]
    again = events_of(changed(options, trials=14), ScriptedRunner(ignores))
    more = [trial.config for trial in trials_of(again)]
    assert not [config for config in more if config["optimizer_impl"]], "the study remembers"


SPACE = "batch_size: [8, 16, 32]\nnum_workers: [0, 1, 2]\n"


def speed(config, phase):
    """Larger batches are faster, workers a little."""
    return at(10 * batch_of(config) + float(config["num_workers"] or 0))


def test_what_trains_like_a_refused_trial_is_not_tried(tmp_path):
    """The first seed of batches of 32 is good, further ones are not."""

    def quality(config, seed):
        return 0.5 if batch_of(config) == 32 and seed else 0.9

    begin = ((32, 0), (8, 1), (8, 2), (16, 0), (16, 1), (16, 2))
    first = tuple(TrainingConfig.of({"batch_size": b, "num_workers": w}) for b, w in begin)
    space = "batch_size: [8, 16, 32]\nnum_workers: [0, 1, 2, 4]\n"
    options = options_in(tmp_path, space, trials=12, warm_start=first)
    events = events_of(options, ScriptedRunner(speed, quality))
    sizes = [batch_of(trial.config) for trial in trials_of(events)]
    assert [sizes.count(size) for size in (8, 16, 32)] == [4, 4, 1]
    again = events_of(changed(options, trials=14), ScriptedRunner(speed, quality))
    assert not trials_of(again), "nothing is left, and the study remembers"


@pytest.mark.parametrize("fails", ["probe", "trial"])
def test_what_one_trial_met_alone_says_nothing_of_the_others(tmp_path, fails):
    """A crash of its probe, or a loss that is no number, with two workers only."""

    def measure(config, phase):
        bad = fails == "trial" and phase == "trial" and config["num_workers"] == 2
        return NonFinite("loss is nan") if bad else speed(config, phase)

    def instead(job, outcome):
        bad = fails == "probe" and isinstance(job.task, Probe) and job.task.seeds == (0,)
        return Crashed("signal 11") if bad and job.config["batch_size"] == 16 else outcome

    options = unstored_in(tmp_path, SPACE, trials=9)
    events = events_of(options, ScriptedRunner(measure, instead=instead))
    configs = [trial.config for trial in trials_of(events)]
    assert {config["num_workers"] for config in configs} == {0, 1, 2}
    assert len(configs) == 9, "each configuration is tried"
