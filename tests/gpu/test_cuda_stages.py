"""Diagnosis and profile on each device."""

from pathlib import Path

import pytest

from autotune.configuration.job import Diagnose, Job, Observe
from autotune.configuration.script import Script
from autotune.values.outcome import Diagnosed, Observed
from children import ended_as
from factories import written
from gpus import CUDA, QUICK, cuda_only, job_on

LAYERS = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def build_model():
    return nn.Sequential(*(nn.Linear({width}, {width}) for _ in range({layers})))

def build_dataset():
    return TensorDataset(torch.zeros(64, {width}))

def compute_loss(model, batch):
    return model(batch[0]).square().mean()
"""
SCRIPT = Path(__file__).parents[1] / "scripts" / "says_its_losses.py"


def test_each_stage_of_training_is_timed(device, ask):
    found = ended_as(Diagnosed, ask(job_on(device, Diagnose(QUICK, workers=(0, 1)))))
    assert 0 < found.optimizer_seconds < found.compute_seconds
    assert [one.num_workers for one in found.loading] == [0, 1]
    assert all(one.seconds > 0 for one in found.loading)
    assert found.double_compute_seconds is not None
    on_cpu = device == "cpu"
    assert (found.transfer_seconds == 0) is on_cpu, "nothing is copied on a CPU"
    assert (found.launch_seconds is None) is on_cpu, "nor launched"
    assert (found.busy_seconds is None) is on_cpu
    if found.busy_seconds is not None:
        assert 0 < found.busy_seconds < 1.1 * found.compute_seconds


def test_the_stages_of_an_unchanged_script_are_seen(device, ask, tmp_path):
    job = Job(
        Observe(),
        device="auto",
        model_path=str(SCRIPT),
        script=Script((device, "plain", "1", str(tmp_path / "losses.txt"))),
        deadline_seconds=180.0,
    )
    seen = ended_as(Observed, ask(job))
    assert seen.device.startswith(device)
    stages = seen.stages
    assert 0 < stages.optimizer_seconds < stages.compute_seconds
    assert all(one.seconds > 0 for one in stages.loading)
    on_cpu = device == "cpu"
    assert (stages.transfer_seconds == 0) is on_cpu, "nothing is copied on a CPU"
    assert (stages.busy_seconds is None) is on_cpu
    if stages.busy_seconds is not None:
        assert 0 < stages.busy_seconds < 1.1 * stages.compute_seconds


@cuda_only("a CPU is told nothing ahead")
@pytest.mark.parametrize(("width", "layers", "is_idle"), [(8, 200, True), (8192, 4, False)])
def test_a_gpu_is_idle_where_python_launches_many_small_kernels(
    width, layers, is_idle, ask, tmp_path
):
    model = written(tmp_path, LAYERS.format(width=width, layers=layers), "model.py")
    found = ended_as(Diagnosed, ask(job_on(CUDA, Diagnose(QUICK, workers=(0,)), model)))
    assert found.busy_seconds is not None
    assert found.launch_seconds is not None
    assert (found.busy_seconds < 0.7 * found.compute_seconds) is is_idle
    assert (found.launch_seconds > 0.8 * found.compute_seconds) is is_idle


def test_a_profile_watches_the_loop(device, ask):
    task = Diagnose(QUICK, workers=(0,), watch_seconds=1.0)
    found = ended_as(Diagnosed, ask(job_on(device, task))).profiled
    assert found.steps >= 8
    assert found.operators > 0
    assert found.allocator_retries == 0
    assert min(found.memory) > 0
