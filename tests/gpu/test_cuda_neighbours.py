"""Which GPU it is, and who else uses it: `pytest -m gpu`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autotune.outcome import Inspected
from autotune.tuning.running.neighbours import neighbours
from autotune.tuning.running.runner import SubprocessRunner
from autotune.tuning.scene import inspection

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
HOLDER = """
import sys, torch
held = torch.zeros(1 << 28, device="cuda:0")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.read()
"""


def uuid_of(folder: Path, visible: str | None, monkeypatch: pytest.MonkeyPatch) -> str:
    """What an inspecting child says of cuda:0 behind a mask."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with SubprocessRunner(folder / "inductor", warm=False) as runner:
        found = runner.run(inspection("cuda:0", None), folder / "inspect")
    assert isinstance(found, Inspected), found
    return found.device_uuid


@pytest.fixture
def holder() -> Iterator[None]:
    """Another process with a gigabyte of the first GPU."""
    program = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout.readline() == "held\n"
        yield
        it.stdin.close()


def test_a_gpu_is_the_same_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        pytest.skip("somebody else chose the devices")
    plain = uuid_of(tmp_path, None, monkeypatch)
    assert plain
    assert uuid_of(tmp_path, "0", monkeypatch) == plain
    assert uuid_of(tmp_path, f"GPU-{plain}", monkeypatch) == plain


@pytest.mark.usefixtures("holder")
def test_a_gpu_that_another_process_uses_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pynvml")
    assert neighbours(uuid_of(tmp_path, None, monkeypatch))
