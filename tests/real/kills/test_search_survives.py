"""A whole search over configurations that break: it goes on, answers, leaves and tells nothing."""

import json
import stat
import tempfile

import optuna
import pytest

from autotune.configuration.best_config import read_best
from autotune.context.options import SearchOptions
from autotune.process.runner import SubprocessRunner
from autotune.searching.run.events import Answered
from autotune.searching.search import search
from children import WORKLOADS, nobody_is_left
from covering import covers
from factories import written
from hurried_runner import HurriedRunner, decide_after
from scripted_runner import trials_of

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIplanted",
    "HF_TOKEN": "hf_planted0123456789",
    "DATABASE_PASSWORD": "planted-hunter2",
}
BREAKING = {
    16: "killed by SIGSEGV",
    20: "sys.exit(0)",
    64: "the loss became nan",
    160: "out of device memory",
}
SPACE = f"batch_size: {[8, *BREAKING, 128]}\n"


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The folder and the events of a search, with secrets in its environment."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        decide_after(2, patch.setattr)
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        patch.setenv("TMPDIR", str(folder / "tmp"))
        patch.setattr(tempfile, "tempdir", None)
        options = SearchOptions.of(
            model_path=WORKLOADS / "faulty.py",
            study="mine",
            storage=f"sqlite:///{folder / 'studies' / 'mine' / 'study.db'}",
            folder=folder / "studies" / "mine",
            out=folder / "studies" / "mine" / "best.yaml",
            space=str(written(folder, SPACE)),
            trials=6,
        )
        with SubprocessRunner(options.study.folder / "inductor") as runner:
            events = list(search(options, HurriedRunner(runner)))
    return folder, events


def trials(events):
    """Batch size to verdict."""
    ended = trials_of(events)
    return {
        int(t.config["batch_size"]): "ok" if t.verdict.feasible else t.verdict.reason for t in ended
    }


@covers("T1", "U6")
def test_the_search_goes_on_after_every_fault_and_answers(searched):
    folder, events = searched
    assert isinstance(events[-1], Answered)
    found = trials(events)
    assert found.keys() == {8, *BREAKING, 128}
    assert all(words in found[batch_size] for batch_size, words in BREAKING.items())
    assert found[8] == "ok"
    assert nobody_is_left(folder)


def test_a_configuration_that_broke_is_infeasible_and_cannot_win(searched):
    folder, _ = searched
    best = read_best(folder / "studies" / "mine" / "best.yaml")
    assert best.config["batch_size"] in {8, 128}
    storage = f"sqlite:///{folder / 'studies' / 'mine' / 'study.db'}"
    study = optuna.load_study(study_name="mine", storage=storage)
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}
    broken = [t for t in study.trials if t.params["batch_size"] in BREAKING]
    assert all(max(trial.constraints.values()) > 0 for trial in broken)
    assert study.best_trial.params["batch_size"] in {8, 128}


@covers("R16")
def test_a_failed_configuration_is_not_run_a_second_time(searched):
    folder, _ = searched
    jobs = (folder / "studies" / "mine" / "trials").glob("[0-9]*/job.json")
    sizes = [json.loads(job.read_text())["config"]["batch_size"] for job in jobs]
    assert sorted(sizes) == sorted([*BREAKING, 128])


@covers("X8")
def test_no_secret_of_the_environment_is_in_any_file(searched):
    folder, _ = searched
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"best.yaml", "study.db", "job.json", "outcome.json"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        assert not [name for name in SECRETS if name.encode() in content], path
        assert not [value for value in SECRETS.values() if value.encode() in content], path


@covers("S14")
def test_nothing_is_left_among_the_temporary_files(searched):
    assert list((searched[0] / "tmp").iterdir()) == []


@covers("X10")
def test_only_their_owner_can_look_into_the_folders_of_trials(searched):
    trial = searched[0] / "studies" / "mine" / "trials"
    folders = [path.parent for path in trial.rglob("job.json")]
    assert folders
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
