"""Outputs of a model under CUDA graphs may be kept, in training and in evaluations."""

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from factories import best_config

SCRIPT = Path(__file__).parents[1] / "scripts" / "keeps_outputs.py"
BASELINE = TrainingConfig.of({"batch_size": 16})
KEPT = [
    *("training: compiled True, kept True", "accumulation: kept True"),
    *("evaluation: compiled False, kept True", "evaluation with gradients: kept True"),
]


@pytest.fixture
def best(tmp_path):
    """A best.yaml that asks for CUDA graphs; on a CPU the mode compiles without them."""
    path = tmp_path / "best.yaml"
    write_best(best_config(BASELINE.replace(compile_mode="reduce-overhead"), BASELINE), path)
    return path


def test_in_a_loop_of_ones_own(device, best):
    done = python(best.parent, SCRIPT, "compiled", device, best)
    assert done.stdout.splitlines() == KEPT, done.stderr


def test_in_a_script_that_nobody_changed(device, best):
    words = ("-m", "autotune", "run", best, "--allow-numerics", SCRIPT)
    done = python(best.parent, *words, "compiled", device)
    assert done.stdout.splitlines() == KEPT, done.stderr
    assert "compile_mode=reduce-overhead" in done.stderr.partition("not applied")[0]


def python(folder, *words):
    """A finished Python, whose warnings are no errors."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
