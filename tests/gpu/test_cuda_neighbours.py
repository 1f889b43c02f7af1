"""A GPU is known by its uuid, and its other users are noticed."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from autotune.configuration.job import Measure
from autotune.context.inspection import inspection
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Inspected
from children import measured, printed
from covering import covers
from factories import TINY_CONV, written
from gpus import CUDA, QUICK, cuda_only, job_on

# Each goes on when both are in their first step: then both have memory on the device.
MEETS = """
import os, time
from pathlib import Path

train, here = compute_loss, Path({folder!r}) / str(os.getpid())

def compute_loss(model, batch):
    if not here.exists():
        here.touch()
        while len(list(here.parent.iterdir())) < 2:
            time.sleep(0.01)
    return train(model, batch)
"""

# Prints whether NVML has the process among those that compute on the GPU. It has ended before the
# jobs begin.
IS_LISTED = """
import os, pynvml, torch

held = torch.ones(1, device="cuda:0")
pynvml.nvmlInit()
uuid = torch.cuda.get_device_properties(held.device).uuid
try:
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
except pynvml.NVMLError:  # as on a part of a GPU
    found = []
print(os.getpid() in {process.pid for process in found})
"""


def uuid_of(folder, visible, monkeypatch):
    """Return the uuid that an inspecting child tells of cuda:0 behind a mask."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with SubprocessRunner(folder / "inductor", warm=False) as runner:
        found = runner.run(inspection(CUDA, None), folder / "inspect")
    assert isinstance(found, Inspected), found
    return found.device_uuid


@cuda_only("a CPU has no number that could change")
def test_a_gpu_is_the_same_however_it_is_named(tmp_path, monkeypatch):
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        pytest.skip("somebody else chose the devices")
    plain = uuid_of(tmp_path, None, monkeypatch)
    assert plain
    assert uuid_of(tmp_path, "0", monkeypatch) == plain
    assert uuid_of(tmp_path, f"GPU-{plain}", monkeypatch) == plain


def test_two_jobs_train_on_one_device_at_a_time(device, tmp_path):
    for outcome in together(device, tmp_path):
        measured(outcome)


@covers("T21")
@cuda_only("others on a CPU are seen by the time that they take")
def test_two_jobs_on_one_gpu_notice_each_other(tmp_path):
    pytest.importorskip("pynvml")
    if printed(tmp_path, IS_LISTED) == ["False"]:
        pytest.skip("NVML lists no processes here, as in most containers")
    for outcome in together(CUDA, tmp_path):
        blocks = measured(outcome).blocks
        assert any("other processes" in block.noise.gpu for block in blocks)


def together(device, folder):
    """Return the outcomes of two jobs that are in their first step at the same time."""
    (meeting := folder / "meeting").mkdir()
    text = TINY_CONV.read_text() + MEETS.format(folder=str(meeting))
    job = job_on(device, Measure(QUICK), written(folder, text, "meets.py"))
    job = replace(job, deadline_seconds=120.0)  # where one fails, the other would wait for it

    def run(name):
        with SubprocessRunner(folder / "inductor", warm=False) as runner:
            return runner.run(job, folder / name)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, ("one", "other")))
