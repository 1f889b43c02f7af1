"""Knobs in the code of a model.py, for real: searched, written, reported, loaded, refused."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import optuna
import pytest

import autotune
from autotune.configuration.best_config import read_best
from autotune.configuration.job import Inspect, Probe
from autotune.processes.runner import SubprocessRunner
from autotune.values.errors import UsageError
from autotune.values.outcome import Inspected, Measured, NotApplied, Probed, UserError
from children import WORKLOADS, hurried, job_for
from children import autotune as run_autotune
from dashboards import parameter_shown
from factories import written

NAME = "knob_in_code"
MODEL = WORKLOADS / f"{NAME}.py"
BROKEN = """\
    def on_model(self, value, model):
        if value == 0:
            raise RuntimeError("no such pause")
        return model
"""


def finished(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the search of a model.py that has two knobs of its own."""
    folder = tmp_path_factory.mktemp("code")
    for name in (MODEL.name, "plain.py"):
        shutil.copy(WORKLOADS / name, folder)
    written(folder, "num_workers: [0]\n")
    flags = ("--trials", "4", "--accuracy-samples", "512", "--out", "best.yaml")
    finished(hurried(folder, "search", MODEL.name, "--space", "space.yaml", *flags))
    return folder


@pytest.mark.slow
def test_a_search_finds_the_value_and_what_reads_back_otherwise_cannot_win(searched: Path) -> None:
    best = read_best(searched / "best.yaml")
    assert best.autotune == 2
    assert (best.config["knobs.pause"], best.config["knobs.untold"]) == (0, False)
    assert best.evidence.baseline.config["knobs.pause"] == 5
    assert best.effects == {"knobs.pause": "exact", "knobs.untold": "numerics"}
    assert best.constraints.accuracy.evidence == "exact"
    study = optuna.load_study(
        study_name=NAME, storage=f"sqlite:///{searched}/studies/{NAME}/study.db"
    )
    assert {0, 5} == {trial.params["knobs.pause"] for trial in study.trials}
    untold = [trial for trial in study.trials if trial.params["knobs.untold"]]
    assert {trial.user_attrs["not_applied"] for trial in untold} == {"knobs.untold"}


@pytest.mark.slow
def test_optuna_dashboard_shows_it_as_a_parameter_with_its_values(searched: Path) -> None:
    values, note = parameter_shown(searched, NAME, "knobs.pause")
    assert values == {"0", "5"}
    assert "knobs.pause" in note


@pytest.mark.slow
def test_reports_exports_and_comparisons_have_it(searched: Path) -> None:
    told = finished(run_autotune(searched, "report", NAME))
    assert "knobs.pause=0" in told.stdout
    finished(run_autotune(searched, "report", NAME, "--html", "report.html"))
    assert "knobs.pause" in (searched / "report.html").read_text()
    exported = finished(run_autotune(searched, "export", "best.yaml", "--format", "env"))
    assert "knobs.pause=0: autotune.load(path, knobs=KNOBS), with KNOBS of" in exported.stderr
    flags = ("--rounds", "6", "--json")
    compared = finished(hurried(searched, "compare", MODEL.name, "best.yaml", *flags))
    assert json.loads(compared.stdout)["ratio"] > 1


@pytest.mark.slow
@pytest.mark.long
def test_the_same_command_continues_and_another_search_begins_with_it(searched: Path) -> None:
    search = ("search", MODEL.name, "--space", "space.yaml", "--accuracy-samples", "512")
    done = finished(hurried(searched, *search, "--trials", "4", "--out", "best.yaml"))
    assert "knobs.pause=0" in done.stderr
    flags = ("--study", "again", "--warm-start", "best.yaml", "--trials", "2")
    finished(hurried(searched, *search, *flags, "--out", "again.yaml"))
    trial = searched / "studies" / "again" / "trials" / "0001"
    assert json.loads((trial / "job.json").read_text())["config"]["knobs.pause"] == 0


@pytest.mark.slow
def test_a_program_gives_the_knobs_and_their_hooks_run_there(
    searched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(searched))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    module = importlib.import_module(NAME)
    assert module.STATE == {"pause": 5}
    best = autotune.load(searched / "best.yaml", knobs=module.KNOBS)
    best.apply_to_process()
    assert module.STATE == {"pause": 0}
    forgetful = autotune.load(searched / "best.yaml")
    assert "knobs.pause=0" in forgetful.explain()
    with pytest.raises(UsageError, match=r"knobs.pause=0: .*autotune.load\(path, knobs=KNOBS\)"):
        forgetful.apply_to_process()
    with pytest.raises(UsageError, match="Pause is a class; write Pause"):
        autotune.load(searched / "best.yaml", knobs=[module.Pause])


@pytest.mark.slow
def test_run_says_that_only_a_program_can_apply_it(searched: Path) -> None:
    written(searched, "import torch\n", "train.py")
    done = finished(run_autotune(searched, "run", "best.yaml", "train.py"))
    assert "left out: knobs.pause=0, knobs.untold=false (only a program with the" in done.stderr


def test_a_trial_runs_the_hooks_and_says_what_did_not_take_effect(tmp_path: Path) -> None:
    with SubprocessRunner(tmp_path / "inductor") as runner:
        quick = runner.run(job_for(MODEL, {"knobs.pause": 0}), tmp_path / "quick")
        slow = runner.run(job_for(MODEL), tmp_path / "slow")
        untold = runner.run(job_for(MODEL, {"knobs.untold": True}), tmp_path / "untold")
        probe = job_for(MODEL, {"knobs.pause": 0}, Probe(samples=64, seeds=(0,)))
        assert isinstance(runner.run(probe, tmp_path / "probe"), Probed)
    assert isinstance(quick, Measured)
    assert isinstance(slow, Measured)
    assert quick.measurement.samples_per_second > slow.measurement.samples_per_second
    assert untold == NotApplied("knobs.untold", "true", "false")


def test_a_hook_that_raises_in_a_trial_is_told_with_its_line(tmp_path: Path) -> None:
    model, lines = changed(
        tmp_path, "    def on_process", f"{BROKEN.strip(chr(10))}\n\n    def on_process"
    )
    line = lines.index('            raise RuntimeError("no such pause")') + 1
    with SubprocessRunner(tmp_path / "inductor") as runner:
        outcome = runner.run(job_for(model, {"knobs.pause": 0}), tmp_path / "trial")
    assert outcome == UserError("RuntimeError: no such pause", f"{model}:{line}")


def changed(folder: Path, old: str, new: str) -> tuple[Path, list[str]]:
    """Write the workload with a change; return its path and lines."""
    shutil.copy(WORKLOADS / "plain.py", folder)
    text = MODEL.read_text()
    assert old in text
    path = written(folder, text.replace(old, new, 1), "model.py")
    return path, path.read_text().splitlines()


def test_the_inspection_describes_them_as_data(tmp_path: Path) -> None:
    with SubprocessRunner(tmp_path / "inductor") as runner:
        outcome = runner.run(job_for(MODEL, task=Inspect()), tmp_path / "inspect")
    assert isinstance(outcome, Inspected)
    assert outcome.workload is not None
    pause, untold = outcome.workload.knobs
    assert (pause.name, pause.effect, pause.default, pause.suggested) == (
        "knobs.pause",
        "exact",
        5,
        (5, 0),
    )
    assert (untold.effect, untold.options) == ("numerics", (False, True))


def test_all_that_is_wrong_is_told_before_anything_is_timed(tmp_path: Path) -> None:
    model, lines = changed(tmp_path, 'name = "pause"', 'name = "batch_size"')
    model.write_text(
        model.read_text().replace("KNOBS = [Pause(), Untold()]", "KNOBS = [Pause, Pause(), 7]")
    )
    done = hurried(tmp_path, "search", "model.py")
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    line = lines.index("class Pause(Knob):") + 1
    for said in (
        f"model.py:{line}: KNOBS[0]: Pause is a class; write Pause().",
        f"model.py:{line}: KNOBS[1]: batch_size is a knob of autotune; choose another name.",
        "KNOBS[2]: 7 is no knob; derive its class from autotune.knobs.base.Knob.",
    ):
        assert said in done.stderr
    assert not list(tmp_path.glob("studies/*/trials/0000"))


def test_the_command_knobs_lists_them_with_their_values(tmp_path: Path) -> None:
    done = finished(run_autotune(tmp_path, "knobs", MODEL, "--device", "cpu"))
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("knobs.pause")]
    assert line.split()[:4] == ["knobs.pause", "5", "5,", "0"]
    assert "Milliseconds of sleep in each step." in line


def test_the_check_tells_which_knobs_keep_the_contract_and_what_the_others_break(
    tmp_path: Path,
) -> None:
    model, lines = changed(tmp_path, "KNOBS = [Pause(), Untold()]", "KNOBS = [Pause()]")
    done = finished(run_autotune(tmp_path, "knobs", "--check", model, "--device", "cpu"))
    assert done.stdout == "knobs.pause keeps the contract with 5, 0\n"
    text = model.read_text().replace("BASELINE = plain.BASELINE", 'BASELINE = {"batch_size": 8}')
    model.write_text(text)
    done = finished(run_autotune(tmp_path, "knobs", "--check", model, "--device", "cpu"))
    assert done.stdout == "knobs.pause keeps the contract with 5, 0\n", "threads are torch's own"
    done = run_autotune(tmp_path, "knobs", "--check", MODEL, "--device", "cpu")
    assert (done.returncode, done.stdout) == (4, "")
    line = lines.index("class Untold(Knob):") + 1
    assert f"{MODEL}:{line}: untold: true reads back as false; put it into force" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_check_tells_a_hook_that_raises_with_its_line(tmp_path: Path) -> None:
    hook = "    def on_process"
    model, lines = changed(tmp_path, hook, f"{BROKEN}\n{hook}")
    line = lines.index('            raise RuntimeError("no such pause")') + 1
    done = run_autotune(tmp_path, "knobs", "--check", model.name, "--device", "cpu")
    assert done.returncode == 4
    assert f"pause: {model}:{line}: RuntimeError: no such pause." in done.stderr
    assert "untold: true reads back as false" in done.stderr, "the others are checked, too"


def test_a_check_needs_a_file_with_knobs(tmp_path: Path) -> None:
    done = run_autotune(tmp_path, "knobs", "--check")
    assert done.returncode == 2
    assert "--check needs a MODEL: autotune knobs --check model.py" in done.stderr
    done = run_autotune(tmp_path, "knobs", "--check", WORKLOADS / "plain.py", "--device", "cpu")
    assert done.returncode == 2
    assert "plain.py has no KNOBS. Write KNOBS = [MyKnob()] in it." in done.stderr
