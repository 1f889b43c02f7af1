"""A search of an unchanged script begins with what an earlier search found."""

from contextlib import chdir

import pytest

from autotune.commands import execute
from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Inspected
from command_line import command
from factories import best_config, cpu_machine, written
from scripted_runner import SEEN, ScriptedRunner, at
from scripted_runner import SEEN_SETTINGS as OWN

SPACE = "num_workers: [0, 1, 2, 3, 4, 5, 6]\nnum_threads: [1, 2]\n"


def five_workers_are_best(config, _):
    return at(200 - 10 * abs(5 - int(config["num_workers"] or 0)))


class Processes(ScriptedRunner):
    """A runner in the place of real processes."""

    def __init__(self):
        super().__init__(five_workers_are_best, observed=SEEN)
        self.inspected = Inspected(cpu_machine(cores=8), None)

    @property
    def trials(self):
        """The jobs of the trials, less the baseline's."""
        asked = zip(self.jobs, self.asked, strict=True)
        return [job for job, one in asked if one.phase == "trial"]


@pytest.fixture
def folder(tmp_path):
    written(tmp_path, "raise SystemExit('ran')\n", "train.py")
    written(tmp_path, SPACE)
    return tmp_path


def search(folder, monkeypatch, *words):
    monkeypatch.setattr(execute, "SubprocessRunner", runner := Processes())
    with chdir(folder):
        done = command("search", "train.py", "--space", "space.yaml", "--trials", "4", *words)
    assert done.code == 0, done.err
    return done, runner


def test_the_best_of_an_older_study_of_the_script_comes_first(folder, monkeypatch):
    search(folder, monkeypatch, "--study", "older", "--trials", "14")
    older = read_best(folder / "studies" / "older" / "best.yaml").training_config
    assert older["num_workers"] == 5
    words = ("--study", "newer", "--warm-start", "studies/older/best.yaml")
    _, runner = search(folder, monkeypatch, *words)
    first = runner.trials[0]
    assert first.config is not None
    assert first.config["num_workers"] == 5
    assert first.script is not None
    assert "num_workers" in first.script.asked


def test_of_an_answer_for_a_model_py_that_is_tried_which_reaches_the_script(folder, monkeypatch):
    own = TrainingConfig.of({**OWN, "batch_size": 32})
    found = own.replace(batch_size=256, num_workers=5, amp_dtype="bfloat16")
    write_best(best_config(found, own), folder / "best.yaml")
    _, runner = search(folder, monkeypatch, "--warm-start", "best.yaml")
    first = runner.trials[0].config
    assert (first["num_workers"], first["batch_size"], first["amp_dtype"]) == (5, 16, None)
