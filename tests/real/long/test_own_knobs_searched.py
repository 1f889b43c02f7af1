"""Knobs of the user's own, for real: searched, written, run, exported, reported, loaded."""

import shutil
from pathlib import Path

import pytest

import autotune
from autotune.configuration.best_config import read_best
from autotune.configuration.job import Inspect
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Inspected
from children import WORKLOADS, hurried, measured, shared_job
from children import autotune as run_autotune
from factories import written

SCRIPTS = Path(__file__).parents[2] / "scripts"
MODEL_SPACE = """\
num_workers: [0]
env:
  OWN_PAUSE: {values: [null, "0"], effect: exact}
options:
  careful: [true, false]
"""
SCRIPT_SPACE = """\
num_workers: [0]
env:
  OWN_SPEED: {values: [null, "1"], effect: exact}
flags:
  --read-seconds: {values: [0.004, 0.0], effect: exact}
"""


def finished(done):
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def model_search(tmp_path_factory):
    """A folder with the search of a model.py by a variable and an argument of build_model."""
    folder = tmp_path_factory.mktemp("model")
    for name in ("takes_options.py", "plain.py"):
        shutil.copy(WORKLOADS / name, folder)
    written(folder, MODEL_SPACE)
    flags = ("--trials", "4", "--accuracy-samples", "512", "--out", "best.yaml")
    finished(hurried(folder, "search", "takes_options.py", "--space", "space.yaml", *flags))
    return folder


@pytest.fixture(scope="module")
def script_search(tmp_path_factory):
    """A folder with the search of a script by a variable and one of its flags."""
    folder = tmp_path_factory.mktemp("script")
    shutil.copy(SCRIPTS / "plain_loop.py", folder / "train.py")
    written(folder, SCRIPT_SPACE)
    flags = ("--space", "space.yaml", "--trials", "4", "--out", "best.yaml")
    own = ("--epochs", "100000", "--batch-size", "8", "--read-seconds", "0.004")
    finished(hurried(folder, "search", "train.py", *flags, "--", *own))
    return folder


def test_a_search_of_a_model_py_finds_the_variable_and_the_argument(model_search):
    best = read_best(model_search / "best.yaml")
    assert best.config["env.OWN_PAUSE"] == "0"
    assert best.config["options.careful"] is False
    assert best.evidence.baseline.config["options.careful"] is True
    assert best.effects == {"env.OWN_PAUSE": "exact", "options.careful": "numerics"}
    assert best.constraints.accuracy.evidence == "short trainings"
    assert best.evidence.searched.tried["env.OWN_PAUSE"] == (None, "0")


def test_a_program_gets_the_arguments_and_the_shell_gets_the_variable(model_search):
    path = model_search / "best.yaml"
    best = autotune.load(path)
    assert best.options() == {"careful": False}
    assert best.dataset_options() == {}
    exported = finished(run_autotune(model_search, "export", path, "--format", "env"))
    assert "export OWN_PAUSE=0\n" in exported.stdout
    assert "options.careful=false: build_model(careful=...)" in exported.stderr
    module = finished(run_autotune(model_search, "export", path, "--format", "python"))
    assert "'env.OWN_PAUSE': '0',  # OWN_PAUSE=... in the environment" in module.stdout


def test_a_search_of_a_script_finds_the_flag_and_run_applies_it(script_search):
    best = read_best(script_search / "best.yaml")
    assert best.config["flags.--read-seconds"] == 0.0
    assert best.evidence.baseline.config["flags.--read-seconds"] == 0.004
    assert best.constraints.accuracy.evidence == "exact"
    words = ("--epochs", "2", "--read-seconds", "0.004")
    done = finished(run_autotune(script_search, "run", "best.yaml", "train.py", *words))
    assert "flags.--read-seconds=0.0 (by --read-seconds)" in done.stderr
    printed = finished(
        run_autotune(script_search, "run", "--print-command", "best.yaml", "train.py", *words)
    )
    assert printed.stdout.rstrip().endswith("train.py --epochs 2 --read-seconds 0.0")
    other = script_search / "other.py"
    other.write_text((script_search / "train.py").read_text() + "# another\n")
    printed = finished(
        run_autotune(script_search, "run", "--print-command", "best.yaml", other, "--epochs", "2")
    )
    assert printed.stdout.rstrip().endswith("other.py --epochs 2"), "it may not know the flag"


def test_run_sets_the_variable_that_a_search_found(model_search):
    (model_search / "says.py").write_text("import os\nimport torch\nprint(os.environ['OWN_PAUSE'])")
    assert finished(run_autotune(model_search, "run", "best.yaml", "says.py")).stdout == "0\n"


def test_a_dataset_is_shared_by_those_alone_that_build_it_with_the_same_arguments(tmp_path):
    found = []
    with SubprocessRunner(tmp_path / "inductor") as runner:
        for number, settings in enumerate(({}, {"dataset_options.samples": 64}, {})):
            job = shared_job(WORKLOADS / "takes_options.py", settings)
            run = measured(runner.run(job, tmp_path / str(number)))
            assert (tmp_path / str(number) / "launch").read_text() == "forked\n"
            found.append(run.epoch_samples)
    assert found == [256, 64, 256]


def test_the_inspection_tells_what_the_functions_take_and_builds_what_is_built_today(tmp_path):
    job = shared_job(
        WORKLOADS / "takes_options.py", task=Inspect(baseline={"dataset_options.samples": 64})
    )
    with SubprocessRunner(tmp_path / "inductor") as runner:
        outcome = runner.run(job, tmp_path / "inspect")
    assert isinstance(outcome, Inspected)
    assert outcome.workload.dataset_samples == 64
    signature = outcome.workload.signatures["build_model"]
    assert (signature.text, signature.defaults) == (
        "build_model(careful: bool = True)",
        {"careful": True},
    )
    signature = outcome.workload.signatures["build_dataset"]
    assert (signature.text, signature.defaults, signature.takes_any) == (
        "build_dataset(samples: int = 256)",
        {"samples": 256},
        False,
    )
