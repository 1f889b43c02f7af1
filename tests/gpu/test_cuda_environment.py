"""A variable that PyTorch reads as it starts is in effect in trials that are forked."""

import pytest

from autotune.configuration.job import Measure
from autotune.values.outcome import Measured
from factories import written
from gpus import CUDA, QUICK, cuda_only, job_on

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
    outcome = ask(job_on(CUDA, Measure(QUICK), model, **{CONF: value}))
    assert isinstance(outcome, Measured), outcome
