"""What `autotune doctor` prints of a GPU that no machine here has."""

import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from autotune.console.tables import show_machine
from autotune.process.common.interpreter import Interpreter, own_interpreter
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
def test_what_tells_of_the_gpu_is_looked_for_in_the_python_that_trains(packages, said, capsys):
    show_machine(cuda_machine(), replace(TRAINS, packages={**TRAINS.packages, **packages}))
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed
    assert ("other GPU processes" in printed) is bool(said)


def test_looking_for_pip_touches_no_module(monkeypatch):
    """To find the module, setuptools would take distutils out, with a warning."""
    monkeypatch.setitem(sys.modules, "distutils", ModuleType("distutils"))
    assert own_interpreter.__wrapped__().packages["pip"] == version("pip")
