"""Importing a part loads no library that it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOAD = "import autotune; autotune.load('studies/digits_cnn/recorded_best.yaml')"


@pytest.mark.parametrize(
    ("statement", "unloaded"),
    [
        ("import autotune", "torch optuna pydantic yaml numpy"),
        (LOAD, "numpy psutil optuna pandas scipy torch"),
        ("import autotune.cli", "torch optuna pydantic"),
        ("import autotune.searching.search", "torch"),
        ("import autotune.export.tensorboard", "torch tensorboard"),
        ("import autotune.process.child.main, autotune.training.tasks", "optuna sqlalchemy"),
        # A child first takes its lifeline and its cores, which torch reads once.
        ("import autotune.process.child.warm_host, autotune.process.child.launchers", "torch"),
        ("import autotune.report.terminal, autotune.report.tables", "torch jinja2"),
        ("from autotune.training.timing import CompileClock; CompileClock()", "torch._dynamo"),
    ],
)
def test_importing_loads_nothing_that_it_does_not_need(statement: str, unloaded: str) -> None:
    program = f"{statement}\nimport sys\nassert not set({unloaded.split()}) & set(sys.modules)"
    subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], timeout=120, check=True
    )
