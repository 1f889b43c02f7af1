"""`autotune compare` from the command line: what it says, and with which exit code."""

import json
import shutil
from contextlib import chdir

import pytest

from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.training_config import TrainingConfig
from children import SETTINGS, WORKLOADS, hurried, nobody_is_left
from command_line import command
from factories import best_config, found_here, written

USAGE, WORKLOAD, MISMATCH, NOT_FASTER = 2, 4, 6, 8
OWN = TrainingConfig.of(SETTINGS)


def answer(folder, name, **changes):
    """A best.yaml with some changes over the workload's own settings."""
    path = folder / name
    write_best(best_config(OWN.replace(**changes), OWN), path)
    return path


def refused(folder, code, *arguments):
    """The message of a comparison that ended as it should, before it started a process."""
    with chdir(folder):
        done = command("compare", *arguments)
    assert "Traceback" not in done.err
    assert (done.code, done.out) == (code, ""), done.err
    return done.err


@pytest.mark.real
def test_a_speed_up_that_has_gone_fails_a_job_with_the_rounds_that_say_so(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for workload in ("stalls_when_fused", "plain"):
        shutil.copy(WORKLOADS / f"{workload}.py", tmp_path)
    (tmp_path / "stalls_when_fused.py").rename(tmp_path / "model.py")
    best = answer(tmp_path, "best.yaml", optimizer_impl="fused")
    assert read_best(best).evidence.speedup.ratio == 1.5, "what it was once"
    flags = ["--require-faster", "--rounds", "6", "--device", "cpu", "--json"]
    done = hurried(tmp_path, "compare", "model.py", "best.yaml", *flags)
    assert done.returncode == NOT_FASTER, done.stderr
    result = json.loads(done.stdout)
    assert result["schema_version"] == 1
    assert result["ci95"][1] < 1
    assert result["still_holds"] is False
    rounds = result["rounds"]
    assert len(result["ratios"]) == rounds >= 6, "more where something else disturbed them"
    lines = done.stderr.splitlines()
    told = sum(line.startswith("  round ") for line in lines)
    assert rounds <= told <= rounds + result["repeated_rounds"], "the void ones, too"
    low, high = result["ci95"]
    interval = f"({low:.2f} to {high:.2f}, {rounds} rounds"
    said = f"{result['ratio']:.2f}x as fast as your settings {interval}"
    assert lines[-1].startswith(f"best.yaml is {said}")
    assert lines[-1].endswith("confirmed 1.45 to 1.55, which no longer holds")
    assert not list(tmp_path.glob("autotune-*")), "the logs are gone where all went well"
    assert nobody_is_left(tmp_path)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["absent.yaml"], "absent.yaml: cannot be read"),
        (["good.yaml", "absent.yaml"], "absent.yaml: cannot be read"),
        (["newer.yaml"], "upgrade autotune"),
        (["rubbish.yaml"], "rubbish.yaml:1:"),
        (["good.yaml", "--rounds", "5"], "--rounds"),
        ([], "Missing argument 'A'"),
    ],
)
def test_files_that_cannot_be_compared_are_refused_before_anything_runs(tmp_path, flags, words):
    text = answer(tmp_path, "good.yaml", batch_size=16).read_text()
    written(tmp_path, text.replace("autotune: 1", "autotune: 3", 1), "newer.yaml")
    written(tmp_path, "autotune: [", "rubbish.yaml")
    assert words in refused(tmp_path, USAGE, WORKLOADS / "plain.py", *flags)


def test_strict_refuses_an_answer_that_was_made_for_something_else(tmp_path):
    elsewhere = answer(tmp_path, "elsewhere.yaml", batch_size=16)
    model = WORKLOADS / "plain.py"
    message = refused(tmp_path, MISMATCH, model, elsewhere, "--strict")
    for words in (
        "elsewhere.yaml was made for something else",
        "CPU: Test CPU in the file",
        "plain.py: changed",
    ):
        assert words in message
    here = tmp_path / "here.yaml"
    write_best(found_here(best_config(OWN, OWN), model), here)
    assert "elsewhere.yaml was" in refused(tmp_path, MISMATCH, model, here, elsewhere, "--strict")
