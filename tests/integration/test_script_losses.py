"""A script's own training loss judges it, without a word from the user, where it can."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.configuration.accuracy_evidence import UNCHANGED
from autotune.configuration.best_config import BestConfig, read_best
from children import autotune
from factories import written

TESTS = Path(__file__).parents[1]
HURRIED = TESTS / "hurried_command.py"
BOTH = "amp_dtype: [null, bfloat16]\n"


def search(
    folder: Path, script: str, *words: str, space: str = BOTH
) -> subprocess.CompletedProcess[str]:
    """Search a copy of a script; the words after a "--" are its own."""
    shutil.copy(TESTS / "scripts" / script, folder / "train.py")
    options = ("--space", str(written(folder, space)), "--trials", "2")
    place = words.index("--") if "--" in words else len(words)
    own, after = words[:place], words[place:]
    command = [sys.executable, str(HURRIED), "search", "train.py", *options, *own, *after]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )


def answer(folder: Path) -> BestConfig:
    return read_best(folder / "studies" / "train" / "best.yaml")


def test_bfloat16_is_found_proven_and_applied_without_an_option(tmp_path: Path) -> None:
    done = search(tmp_path, "classifies.py")
    assert done.returncode == 0, done.stderr
    assert "quality: its training loss, on which it calls backward" in done.stderr
    best = answer(tmp_path)
    accuracy = best.constraints.accuracy
    assert best.config["amp_dtype"] == "bfloat16"
    assert (accuracy.metric, accuracy.evidence) == ("training_loss", "gate and probe")
    assert accuracy.best < accuracy.baseline + accuracy.tolerance
    assert accuracy.gate is not None
    assert 0 < accuracy.gate.loss_error < 0.05
    assert accuracy.judged_by == "mean training loss over the last tenth of " + (
        f"{accuracy.samples} samples"
    )
    path = tmp_path / "studies" / "train" / "best.yaml"
    shown = autotune(tmp_path, "run", path, "--print-command", "train.py")
    assert '"asked": ["amp_dtype"' in shown.stdout or '"amp_dtype"' in shown.stdout
    assert "needs --allow numerics" not in shown.stdout
    older = path.read_text().replace("judged_by:", "#")
    path.write_text(older)
    shown = autotune(tmp_path, "run", path, "--print-command", "train.py")
    assert "needs --allow numerics" in shown.stdout
