"""Whole searches with real children: what a user gets, and what they can rely on."""

import json
import shutil
import signal
import sys

import optuna
import pytest

import autotune
from autotune.context.options import SearchOptions
from autotune.process.runner import SubprocessRunner
from autotune.searching.run.events import Answered
from autotune.searching.search import search
from children import (
    WORKLOADS,
    children_of,
    completed,
    hurried,
    nobody_is_left,
    start_hurried,
    stop,
    succeeded,
    wait_until,
)
from children import autotune as run_autotune
from covering import covers
from factories import written
from hurried_runner import HurriedRunner, decide_after

SPACE = "batch_size: [8, 64]\nnum_workers: [0, 1]\npersistent_workers: [true]\n"
BATCHES = "batch_size: [8, 16, 32, 64, 128]\n"
FLAGS = ["--space", "space.yaml", "--trials", "4", "--out", "best.yaml"]
FLAGS += ["--accuracy-samples", "512"]
INTERRUPTED = 130

# A search of the template, in a process that can be asked afterwards what it imported.
DRIVER = """
import sys
from pathlib import Path
from autotune.process.runner import SubprocessRunner
from autotune.context.options import SearchOptions
from autotune.searching.search import search
from hurried_runner import HurriedRunner

folder = Path.cwd()
options = SearchOptions.of(
    model_path=folder / "model.py", study="template", storage=f"sqlite:///{folder / 'study.db'}",
    folder=folder, out=folder / "best.yaml", space="quick", trials=3,
)
with SubprocessRunner(folder / "inductor") as runner:
    events = list(search(options, HurriedRunner(runner)))
print(type(events[-1]).__name__, "torch" in sys.modules, "model" in sys.modules)
"""


def study_in(folder):
    storage = f"sqlite:///{folder / 'studies' / 'mine' / 'study.db'}"
    return optuna.load_study(study_name="mine", storage=storage)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A folder in which a search was ended by Ctrl-C twice while its second trial ran."""
    folder = tmp_path_factory.mktemp("search")
    shutil.copy(WORKLOADS / "plain.py", folder / "mine.py")
    written(folder, SPACE)
    search = start_hurried(folder, "search", "mine.py", *FLAGS)
    begun = folder / "studies" / "mine" / "trials" / "0002" / "job.json"
    assert wait_until(begun.exists, seconds=240), (folder / "stderr.txt").read_text()
    search.send_signal(signal.SIGINT)
    assert wait_until(
        lambda: "again to stop now" in (folder / "stderr.txt").read_text(), seconds=10
    )
    assert stop(search, signal.SIGINT) == INTERRUPTED
    return folder


@pytest.fixture(scope="module")
def finished(interrupted):
    """The same search, continued to its end with --json."""
    done = succeeded(hurried(interrupted, "search", "mine.py", *FLAGS, "--json"))
    return interrupted, done


@covers("R2")
def test_an_interrupted_search_says_that_it_can_be_continued(interrupted):
    said = (interrupted / "stderr.txt").read_text()
    assert "To continue:\n  autotune search mine.py --space space.yaml" in said
    assert "Traceback" not in said
    assert nobody_is_left(interrupted)
    states = [trial.state.name for trial in study_in(interrupted).trials]
    assert states == ["COMPLETE", "COMPLETE", "FAIL", "WAITING"]


def test_the_continued_search_measures_the_rest_and_keeps_what_was_there(finished):
    folder, done = finished
    assert "after 2 finished trials" in done.stderr
    trials = study_in(folder).trials
    assert [trial.state.name for trial in trials].count("COMPLETE") == 4
    assert [trial.state.name for trial in trials].count("FAIL") == 1
    assert nobody_is_left(folder)


def test_the_answer_is_one_json_object_on_stdout_and_nothing_else(finished):
    folder, done = finished
    answer = json.loads(done.stdout)
    assert answer["schema_version"] == 1
    assert answer["answer"] in {"faster", "keep"}
    best = autotune.load(folder / "best.yaml").answer
    assert answer["best"] == best.model_dump(mode="json")


def test_the_answer_was_measured_in_rounds_or_keeps_the_settings(finished):
    folder, done = finished
    best = autotune.load(folder / "best.yaml").answer
    assert best.config["num_threads"] == 1
    assert best.constraints.memory.margin <= 0
    assert best.constraints.accuracy.margin <= 0
    speedup = best.evidence.speedup
    if json.loads(done.stdout)["answer"] == "keep":
        assert best.config == best.evidence.baseline.config
        assert (speedup.ratio, speedup.ci95) == (1.0, (1.0, 1.0))
    else:
        assert best.config != best.evidence.baseline.config
        assert speedup.ci95[0] > 1
        assert speedup.rounds >= 2


def test_optuna_alone_reads_everything_in_the_study(finished):
    study = study_in(finished[0])
    for trial in study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)):
        assert trial.params.keys() == {"batch_size", "num_workers"}
        assert len(trial.constraints) == len(study.user_attrs["constraint_names"])
        assert trial.user_attrs["config"]["batch_size"] == trial.params["batch_size"]
        assert trial.user_attrs["details"]["outcome"] == "measured"
        assert trial.user_attrs["samples_per_second"] > 0
    assert all(margin <= 0 for margin in study.best_trial.constraints.values())


def hurried_search(folder, workload, monkeypatch, one_host=True):
    """The answer of a search over batch sizes, confirmed in two rounds."""
    decide_after(2, monkeypatch.setattr)
    options = SearchOptions.of(
        model_path=WORKLOADS / f"{workload}.py",
        study="mine",
        storage=f"sqlite:///{folder / 'studies' / 'mine' / 'study.db'}",
        folder=folder / "studies" / "mine",
        out=folder / "best.yaml",
        space=str(written(folder, BATCHES)),
        trials=5,
    )
    with SubprocessRunner(folder / "inductor") as runner:
        answered = list(search(options, HurriedRunner(runner, one_host)))[-1]
    assert isinstance(answered, Answered)
    assert {trial.state.name for trial in study_in(folder).trials} == {"COMPLETE"}
    return answered


def infeasible(study):
    """The batch sizes of the trials with a violated constraint."""
    return {
        trial.params["batch_size"]
        for trial in study.trials
        if any(margin > 0 for margin in trial.constraints.values())
    }


@pytest.mark.long
@covers("T3")
def test_a_workload_that_runs_out_of_memory_gets_a_large_batch_that_fits(tmp_path, monkeypatch):
    answered = hurried_search(tmp_path, "device_hog", monkeypatch, one_host=False)
    # Next to another test, either may be timed as the faster one.
    assert answered.best.config["batch_size"] in {16, 32}
    study = study_in(tmp_path)
    assert infeasible(study) in ({64}, {128}, {64, 128})
    assert study.best_trial.params["batch_size"] in {16, 32}


@pytest.mark.real
def test_a_workload_that_learns_less_from_large_batches_never_gets_one(tmp_path, monkeypatch):
    answered = hurried_search(tmp_path, "needs_many_updates", monkeypatch)
    assert answered.best.config["batch_size"] in {8, 16}
    study = study_in(tmp_path)
    assert infeasible(study) & {32, 64, 128}
    assert not infeasible(study) & {8, 16}
    assert study.best_trial.params["batch_size"] in {8, 16}


@pytest.mark.long
def test_the_template_is_searched_by_a_process_that_never_imports_torch(tmp_path):
    assert run_autotune(tmp_path, "init").returncode == 0
    written(tmp_path, DRIVER, "driver.py")
    command = [sys.executable, "driver.py"]
    done = completed(tmp_path, command, PYTHONPATH=str(WORKLOADS.parent))
    assert done.stdout.splitlines()[-1:] == ["Answered False False"], done.stderr
    assert (tmp_path / "best.yaml").exists()
    assert not children_of(tmp_path)
