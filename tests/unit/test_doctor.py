"""What `autotune doctor` prints of a GPU that no machine here has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.console.tables import show_machine
from autotune.system.interpreter import Interpreter
from factories import cuda_machine

TRAINS = Interpreter(Path("/train/bin/python"), "3.12.0", {"torch": "2.15.0"}, is_other=True)


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ({"pynvml": "13.0"}, ""),
        ({"pip": "25.1"}, "/train/bin/python -m pip install 'nvidia-ml-py'"),
        ({}, "uv pip install --python /train/bin/python 'nvidia-ml-py'"),
    ],
)
def test_what_tells_of_the_gpu_is_looked_for_in_the_python_that_trains(
    packages: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_machine(cuda_machine(), replace(TRAINS, packages={**TRAINS.packages, **packages}))
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed
    assert ("other users of the GPU" in printed) is bool(said)
