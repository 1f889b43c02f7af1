"""Obstacles to torch.compile are found before the first mode is tried."""

import sysconfig
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.utils import _triton

from autotune.knobs import KNOBS
from autotune.training.inspection import describe_machine
from children import autotune, succeeded

COMPILE = KNOBS["compile_mode"]


@pytest.fixture
def image(tmp_path, monkeypatch):
    """A machine with a GPU, Triton, a C compiler and Python's headers; the folder of all that."""
    card = SimpleNamespace(name="Test GPU", total_memory=1 << 34)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(_triton, "has_triton_package", lambda: True)
    monkeypatch.setattr(_triton, "has_triton", lambda: True)
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path / "include"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CC", raising=False)
    for name in ("bin/gcc", "include/Python.h"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch(mode=0o755)
    return tmp_path


def obstacle_on_cuda():
    """Return what is said of the machine; no mode is offered where there is something."""
    machine = describe_machine("cuda:0")
    offered = [value for value in COMPILE.suggestions(machine) if value]
    assert bool(offered) is not bool(machine.compile_obstacle)
    return machine.compile_obstacle


def test_nothing_is_missing(image):
    assert obstacle_on_cuda() == ""


def test_another_compiler_serves_as_well(image):
    (image / "bin" / "gcc").rename(image / "bin" / "clang")
    assert obstacle_on_cuda() == ""


def test_a_compiler_that_triton_does_not_look_for_does_not_serve(image):
    (image / "bin" / "gcc").rename(image / "bin" / "cc")
    assert "needs a C compiler on CUDA, for Triton; none was found" in obstacle_on_cuda()


def test_the_compiler_that_the_environment_names_is_the_one(image, monkeypatch):
    monkeypatch.setenv("CC", "gcc-99")
    assert "CC=gcc-99 was not found" in obstacle_on_cuda()
    (image / "bin" / "gcc").rename(image / "bin" / "gcc-99")
    assert obstacle_on_cuda() == ""


def test_missing_headers_are_named_with_their_folder(image):
    (image / "include" / "Python.h").unlink()
    assert f"Python.h was not found in {image / 'include'}" in obstacle_on_cuda()


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize(
    ("missing", "said"),
    [("has_triton_package", "it is not installed"), ("has_triton", "no support for this device")],
)
def test_triton_is_missing_or_cannot(missing, said, monkeypatch):
    monkeypatch.setattr(_triton, missing, lambda: False)
    assert said in obstacle_on_cuda()


def test_doctor_names_the_compiler_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    done = succeeded(autotune(tmp_path, "doctor", "--device", "cpu"))
    assert "needs a C++ compiler on CPU" in " ".join(done.stdout.split())
