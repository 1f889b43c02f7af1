"""What a trial on a GPU tells and is given: retries, energy, variables of the allocator."""

from pathlib import Path

import pytest

from autotune.configuration.job import Measure
from children import measured
from covering import covers
from factories import TINY_CONV, written
from gpus import CUDA, QUICK, cuda_only, job_on

RETRIES = Path(__file__).parent.parent / "workloads" / "retries.py"
LIMIT = 1 << 30  # of libraries' workspaces alone, a large GPU may hold 100 MiB


@covers("T3")
@pytest.mark.parametrize("model", [TINY_CONV, RETRIES], ids=lambda path: path.stem)
def test_retries_are_counted_where_there_are_any(model, device, ask):
    """A CPU has no such allocator; its limit is the whole process's, which would not fit."""
    on_cpu = device == "cpu"
    run = measured(ask(job_on(device, Measure(QUICK), model, None if on_cpu else LIMIT)))
    assert bool(run.allocator_retries) is (model == RETRIES and not on_cpu)


@cuda_only("it reads the counter of a GPU")
def test_each_block_has_the_energy_that_the_gpu_used_in_it(ask):
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    run = measured(ask(job_on(CUDA, Measure(QUICK))))
    each, rate = run.joules_per_sample, run.samples_per_second
    assert each is not None
    most = pynvml.nvmlDeviceGetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(0))
    assert 0 < each * rate < 1.2 * most / 1000, "no more watts than the GPU may take"


CONF = "env.PYTORCH_ALLOC_CONF"
EXPANDABLE = "expandable_segments:True"
MODEL = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def build_model():
    return nn.Linear(4, 1)

def build_dataset():
    return TensorDataset(torch.zeros(64, 4))

def compute_loss(model, batch):
    segments = torch.cuda.memory_snapshot()
    assert all(one["is_expandable"] is {expandable} for one in segments), segments
    return model(batch[0]).square().mean()
"""


@cuda_only("its allocator reads the variable")
@pytest.mark.parametrize("value", [EXPANDABLE, None])
def test_the_allocator_of_a_forked_trial_has_its_variable(value, ask, tmp_path):
    model = written(tmp_path, MODEL.format(expandable=value is not None), "model.py")
    measured(ask(job_on(CUDA, Measure(QUICK), model, **{CONF: value})))
