"""What `autotune doctor` prints of a GPU that no machine here has."""

import sys
from types import ModuleType

import pytest

from autotune.commands import show
from autotune.process.common import interpreter
from factories import cuda_machine


@pytest.mark.parametrize(
    ("has_nvml", "pip", "said"),
    [
        (True, "25.1", ""),
        (False, "25.1", f"{sys.executable} -m pip install 'nvidia-ml-py'"),
        (False, None, f"uv pip install --python {sys.executable} 'nvidia-ml-py'"),
    ],
)
def test_what_tells_of_the_gpu_is_named_with_how_to_get_it(
    has_nvml, pip, said, capsys, monkeypatch
):
    monkeypatch.setattr(show, "is_installed", lambda _: has_nvml)
    monkeypatch.setattr(interpreter, "_version", lambda _: pip)
    show.show_machine(cuda_machine())
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed
    assert ("other GPU processes" in printed) is bool(said)


def test_looking_for_pip_touches_no_module(monkeypatch):
    """To find the module, setuptools would take distutils out, with a warning."""
    monkeypatch.setitem(sys.modules, "distutils", ModuleType("distutils"))
    assert "pip install" in interpreter.how_to_get("pynvml")
