"""Importing a part loads no library that it does not need."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = "import sys; loaded = {unloaded} & set(sys.modules); assert not loaded, loaded"


@pytest.mark.parametrize(
    "steps",
    [
        [
            ("import autotune", "torch optuna pydantic yaml numpy"),
            ("import autotune.cli", "torch optuna pydantic"),
            ("import autotune.report.terminal, autotune.report.tables", "torch jinja2"),
            ("import autotune.searching.search", "torch"),
            # A child first takes its lifeline and its cores, which torch reads once.
            ("import autotune.process.child.warm_host, autotune.process.child.launcher", "torch"),
        ],
        [
            (
                "import autotune; autotune.load('studies/digits_cnn/recorded_best.yaml')",
                "numpy psutil optuna pandas scipy torch",
            ),
            ("from autotune.training.timing import CompileClock; CompileClock()", "torch._dynamo"),
            ("import autotune.process.child.main, autotune.training.tasks", "optuna sqlalchemy"),
        ],
    ],
    ids=["parent", "child"],
)
def test_importing_loads_nothing_that_it_does_not_need(steps):
    """Each statement, in this order in one process."""
    lines = [
        line
        for statement, unloaded in steps
        for line in (statement, CHECK.format(unloaded=set(unloaded.split())))
    ]
    subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=Path(__file__).parents[3],
        timeout=120,
        check=True,
    )
