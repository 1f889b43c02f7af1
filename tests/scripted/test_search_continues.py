"""A search that was stopped, starved or misled: what is kept, what is refused."""

from dataclasses import replace

import optuna
import pytest
import yaml

from autotune.configuration.constraints import Tolerance
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import Answered, NothingFeasible, Planned, TrialsEnded
from autotune.values import errors
from autotune.values import outcome as outcomes
from covering import covers
from factories import GIB, written
from scripted_runner import ScriptedRunner, at, events_of, in_proportion, options_in, unstored_in


def states(options):
    study = optuna.load_study(study_name="scripted", storage=options.study.storage)
    return [trial.state.name for trial in study.trials]


class Interrupting(ScriptedRunner):
    """Someone presses Ctrl-C while the second trial runs."""

    def run(self, job, folder):
        outcome = super().run(job, folder)
        if len(self.batches("trial")) == 2:
            raise KeyboardInterrupt
        return outcome


@covers("R8")
def test_a_second_run_measures_only_what_is_missing_to_the_total(tmp_path):
    first, second = ScriptedRunner(in_proportion), ScriptedRunner(in_proportion)
    events_of(options_in(tmp_path, trials=3), first)
    events = events_of(options_in(tmp_path, trials=5), second)
    assert next(event for event in events if isinstance(event, Planned)).finished_before == 3
    assert second.batches("baseline") == []
    assert len(first.batches("trial")) == len(second.batches("trial")) == 2
    assert not set(first.batches("trial")) & set(second.batches("trial"))
    assert events[-1].best.config["batch_size"] == 128


def test_a_machine_that_has_some_pages_less_after_a_boot_is_the_same(tmp_path):
    first, second = ScriptedRunner(in_proportion), ScriptedRunner(in_proportion)
    events_of(options_in(tmp_path, trials=3), first)
    machine = second.inspected.machine
    fewer = replace(machine.host, memory_bytes=machine.host.memory_bytes - 3 * 4096)
    second.inspected = replace(second.inspected, machine=replace(machine, host=fewer))
    events = events_of(options_in(tmp_path, trials=5), second)
    assert isinstance(events[-1], Answered)
    assert second.batches("baseline") == []


@covers("R9")
def test_a_run_with_nothing_left_to_do_only_writes_the_answer_again(tmp_path):
    options = options_in(tmp_path)
    answer = events_of(options, ScriptedRunner(in_proportion))[-1]
    options.study.out.unlink()
    runner = ScriptedRunner(in_proportion)
    *_, reason, again = events_of(options, runner)
    assert again == answer
    assert reason == TrialsEnded("all 5 trials are done")
    assert [asked.phase for asked in runner.asked] == ["inspection"]
    assert options.study.out.exists()


def test_the_space_ends_the_search_where_it_is_smaller_than_the_total(tmp_path):
    runner = ScriptedRunner(in_proportion)
    events_of(unstored_in(tmp_path, trials=1000), runner)
    assert sorted(runner.batches("trial")) == [16, 32, 64, 128]


def test_an_interrupted_trial_is_failed_and_comes_again(tmp_path):
    options, stopped = options_in(tmp_path), Interrupting(in_proportion)
    with pytest.raises(KeyboardInterrupt):
        events_of(options, stopped)
    assert states(options) == ["COMPLETE", "COMPLETE", "FAIL", "WAITING"]

    resumed, interrupted = ScriptedRunner(in_proportion), stopped.batches("trial")[-1]
    another = min({16, 32, 64, 128} - set(stopped.batches("trial")))
    asked = (TrainingConfig.of({"batch_size": another}),)
    events = events_of(options_in(tmp_path, warm_start=asked), resumed)
    assert events[-1].best.config["batch_size"] == 128
    assert resumed.batches("baseline") == []
    assert resumed.batches("trial")[:2] == [interrupted, another]
    assert sorted(states(options)) == ["COMPLETE"] * 5 + ["FAIL"]


def test_a_lost_trial_is_failed_and_does_not_count(tmp_path):
    lost = [outcomes.Lost("disk full"), outcomes.Lost("disk full")]

    def twice(config, phase):
        return lost.pop() if phase == "trial" and lost else in_proportion(config, phase)

    runner = ScriptedRunner(twice)
    options = options_in(tmp_path)
    assert isinstance(events_of(options, runner)[-1], Answered)
    assert sorted(states(options)) == ["COMPLETE"] * 5 + ["FAIL"] * 2


@covers("R15")
def test_three_lost_trials_in_a_row_end_the_search_with_the_cause(tmp_path):
    runner = ScriptedRunner(
        lambda config, phase: outcomes.Lost("disk full") if phase == "trial" else at(100)
    )
    options = options_in(tmp_path)
    with pytest.raises(errors.AutotuneError, match="disk full"):
        events_of(options, runner)
    assert states(options) == ["COMPLETE"] + ["FAIL"] * 3


def test_a_time_budget_without_room_for_trials_ends_after_one_process_of_the_baseline(tmp_path):
    runner = ScriptedRunner(in_proportion)
    (tmp_path / "best.yaml").write_text("of an earlier search")
    with pytest.raises(
        errors.NotSearchedEnoughError, match=r"Use --time-budget \d+[ms] or more"
    ) as raised:
        events_of(options_in(tmp_path, time_budget_seconds=1.0), runner)
    assert runner.batches("baseline") == [8]
    assert runner.batches("trial") == []
    assert (tmp_path / "best.yaml").read_text() == "of an earlier search"
    again = events_of(options_in(tmp_path, time_budget_seconds=raised.value.seconds), runner)
    assert len(runner.batches("trial")) == 4, "the time that was named would do"
    assert isinstance(again[-1], Answered)


@pytest.mark.parametrize(
    "failure",
    [
        outcomes.UserError("ValueError: wrong", "model.py:7"),
        outcomes.NonFinite("the loss became nan"),
        outcomes.Crashed("killed by SIGSEGV"),
        outcomes.Rejected("the dataset has 5 samples"),
    ],
)
def test_settings_that_fail_in_the_baseline_are_the_users_to_mend(failure, tmp_path):
    options = unstored_in(tmp_path)
    with pytest.raises(errors.WorkloadError, match=failure.detail):
        events_of(options, ScriptedRunner(lambda config, phase: failure))
    assert not options.study.out.exists()


@pytest.mark.parametrize(
    "failure",
    [outcomes.OutOfMemory("host", "no more", 9 * GIB), outcomes.TimedOut("measure", 60.0)],
)
def test_settings_that_do_not_fit_are_nothing_feasible(failure, tmp_path):
    options = unstored_in(tmp_path)
    events = events_of(options, ScriptedRunner(lambda config, phase: failure))
    assert isinstance(events[-1], NothingFeasible)
    assert not options.study.out.exists()


def test_a_baseline_that_failed_is_measured_anew_the_next_time(tmp_path):
    options = options_in(tmp_path)
    with pytest.raises(errors.WorkloadError):
        events_of(options, ScriptedRunner(lambda config, phase: outcomes.NonFinite("nan")))
    events = events_of(options, ScriptedRunner(in_proportion))
    assert events[-1].best.config["batch_size"] == 128


def test_another_model_does_not_continue_the_study(tmp_path):
    options = options_in(tmp_path)
    events_of(options, ScriptedRunner(in_proportion))
    written(tmp_path, "# trains differently\n", "model.py")
    said = r"the file that trains: not those[\s\S]*--study NAME"
    with pytest.raises(errors.StudyMismatchError, match=said):
        events_of(options, ScriptedRunner(in_proportion))


OTHERS = {
    "space": "batch_size: [8, 16]\n",
    "memory_limit_bytes": GIB,
    "baseline": {"batch_size": 16},
}


@covers("R10")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (OTHERS, tuple(OTHERS)),
        ({"lr_scaling": "sqrt"}, ("lr_scaling",)),
        ({"effective_batch": 32}, ("effective_batch: ", " in the study, 32 now")),
        ({"run_samples": 5_000}, ("objective",)),
        ({"min_accuracy": 0.99}, ("accuracy: ",)),
        ({"accuracy_tolerance": Tolerance(0.01, relative=False)}, ('"relative": ',)),
    ],
    ids=str,
)
def test_all_that_differs_from_the_study_is_named(changes, named, tmp_path):
    events_of(options_in(tmp_path), ScriptedRunner(in_proportion))
    with pytest.raises(errors.StudyMismatchError) as refused:
        events_of(options_in(tmp_path, **changes), ScriptedRunner(in_proportion))
    assert all(name in str(refused.value) for name in named)
    assert "machine" not in str(refused.value)


@covers("R11")
@pytest.mark.parametrize("change", [{"torch": "2.16.0"}, {"device_name": "Another CPU"}], ids=str)
def test_another_machine_or_pytorch_does_not_continue_the_study(change, tmp_path):
    events_of(options_in(tmp_path), ScriptedRunner(in_proportion))
    runner = ScriptedRunner(in_proportion)
    machine = replace(runner.inspected.machine, **change)
    runner.inspected = replace(runner.inspected, machine=machine)
    with pytest.raises(errors.StudyMismatchError, match=r"\n  machine: .* in the study, .* now\n"):
        events_of(options_in(tmp_path), runner)
    assert [asked.phase for asked in runner.asked] == ["inspection"]


@covers("S6")
def test_an_answer_that_cannot_be_written_is_kept_in_the_study(tmp_path):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "best.yaml"
    with pytest.raises(errors.StorageError, match="--out"):
        events_of(options_in(tmp_path, out=out), ScriptedRunner(in_proportion))
    runner = ScriptedRunner(in_proportion)
    events_of(options_in(tmp_path), runner)
    assert [asked.phase for asked in runner.asked] == ["inspection"]
    assert yaml.safe_load((tmp_path / "best.yaml").read_text())["config"]["batch_size"] == 128


def test_a_bad_search_space_is_refused_before_any_process_is_started(tmp_path):
    runner = ScriptedRunner()
    with pytest.raises(errors.UsageError, match="unknown setting"):
        events_of(unstored_in(tmp_path, space="nothing: [1]\n"), runner)
    assert runner.asked == []
