"""Some states stop a search before it answers; an earlier answer may still hold."""

import pytest

from autotune.context.search_context import survey
from autotune.values.errors import StorageError
from autotune.values.outcome import OutOfMemory
from scripted_runner import (
    ScriptedRunner,
    at,
    batch_of,
    events_of,
    in_proportion,
    options_in,
    unstored_in,
)


def test_a_baseline_that_is_interrupted_before_it_is_told_is_measured_again(tmp_path):
    def interrupted(config, seed):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        events_of(options_in(tmp_path), ScriptedRunner(in_proportion, interrupted))
    events = events_of(options_in(tmp_path), ScriptedRunner(in_proportion))
    baseline = next(event.trial for event in events if hasattr(event, "trial"))
    assert (baseline.number, batch_of(baseline.config), baseline.verdict.value) == (0, 8, 80)


def test_a_baseline_whose_probe_runs_out_of_memory_is_nothing_feasible(tmp_path):
    def instead(_, outcome):
        return OutOfMemory("host", "full") if outcome.kind == "probed" else outcome

    events = events_of(unstored_in(tmp_path), ScriptedRunner(in_proportion, instead=instead))
    assert "short training: out of host memory" in next(iter(events[-1].reasons))


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    class NoSpace(ScriptedRunner):
        def run(self, job, folder):
            raise OSError(28, "No space left on device", str(folder))

    with pytest.raises(StorageError, match="No space left on device"):
        events_of(options_in(tmp_path), NoSpace(in_proportion))


def test_a_slow_baseline_is_probed_on_what_it_can_train_in_a_minute(tmp_path):
    events_of(unstored_in(tmp_path), runner := ScriptedRunner(lambda config, phase: at(0.5)))
    assert 8 <= max(getattr(job.task, "samples", 0) for job in runner.jobs) <= 60


def test_the_time_of_a_space_counts_where_neither_time_nor_trials_were_asked_for(tmp_path):
    def budget(**asked):
        options = unstored_in(tmp_path, space="seconds: 200\nbatch_size: [8, 16]\n", **asked)
        return survey(options, ScriptedRunner()).time_budget_seconds

    assert budget(trials=None) == 200
    assert budget(trials=5) is None
    assert budget(trials=None, time_budget_seconds=60.0) == 60
