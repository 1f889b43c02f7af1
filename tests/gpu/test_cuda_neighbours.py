"""A GPU is known by its uuid, and its other users are named."""

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from autotune.configuration.job import Measure
from autotune.context.inspection import inspection
from autotune.process.devices import neighbours
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Inspected, Measured
from covering import covers
from factories import TINY_CONV, written
from gpus import CUDA, QUICK, cuda_only, job_on

HOLDER = """
import sys, torch
held = torch.zeros(1 << 28, device="cuda:0")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.read()
"""
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


def uuid_of(folder, visible, monkeypatch):
    """Return the uuid that an inspecting child tells of cuda:0 behind a mask."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with SubprocessRunner(folder / "inductor", warm=False) as runner:
        found = runner.run(inspection(CUDA, None), folder / "inspect")
    assert isinstance(found, Inspected), found
    return found.device_uuid


def who_uses(uuid):
    """Return what NVML tells of it; skip where its process numbers mean nothing here."""
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
    numbers = [one.pid for one in pynvml.nvmlDeviceGetComputeRunningProcesses(card)]
    if not any(map(psutil.pid_exists, numbers)):
        pytest.skip(f"NVML tells no process of this container: {numbers}")
    return neighbours(uuid)


def numbers_in(lines):
    """Return the numbers of the processes that are named."""
    return {int(number) for line in lines for number in re.findall(r"\((\d+)[,)]", line)}


@pytest.fixture
def holder():
    """The number of another process, with a gigabyte of the first GPU."""
    program = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout.readline() == "held\n"
        yield it.pid
        it.stdin.close()


@cuda_only("a CPU has no number that could change")
def test_a_gpu_is_the_same_however_it_is_named(tmp_path, monkeypatch):
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        pytest.skip("somebody else chose the devices")
    plain = uuid_of(tmp_path, None, monkeypatch)
    assert plain
    assert uuid_of(tmp_path, "0", monkeypatch) == plain
    assert uuid_of(tmp_path, f"GPU-{plain}", monkeypatch) == plain


@covers("T21")
@cuda_only("others on a CPU are seen by the time that they take")
def test_a_gpu_that_another_process_uses_is_known(holder, tmp_path, monkeypatch):
    uuid = uuid_of(tmp_path, None, monkeypatch)
    assert holder in numbers_in(who_uses(uuid))


def test_two_jobs_train_on_one_device_at_a_time(device, tmp_path):
    for outcome in together(device, tmp_path):
        assert isinstance(outcome, Measured), outcome


@covers("T21")
@cuda_only("others on a CPU are seen by the time that they take")
def test_two_jobs_on_one_gpu_are_seen_and_notice_each_other(tmp_path, monkeypatch):
    uuid, most = uuid_of(tmp_path, None, monkeypatch), 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(together, CUDA, tmp_path)
        while not running.done():
            ours = {child.pid for child in psutil.Process().children(recursive=True)}
            most = max(most, len(ours & numbers_in(neighbours(uuid))))
            time.sleep(0.05)
    for outcome in running.result():
        assert isinstance(outcome, Measured), outcome
    if not most:
        pytest.skip("NVML tells no process of this container")
    assert most == 2
    for outcome in running.result():
        assert any("other processes" in block.noise.gpu for block in outcome.measurement.blocks)


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
