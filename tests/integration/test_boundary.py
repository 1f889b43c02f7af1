"""What lies between two epochs is charged though no epoch ended while training was timed."""

import pytest

from autotune.job import Measure, MeasurePlan
from autotune.outcome import Measured
from autotune.tuning.runner import SubprocessRunner
from children import job_for
from factories import written

SHORT = Measure(MeasurePlan(warmup_steps=1, block_seconds=0.02, looks=(6,), max_seconds=1.0))
SOURCE = """
import time, torch
from torch import nn
from torch.utils.data import TensorDataset

def build_model():
    return nn.Linear(4, 1)

def build_dataset():
    return TensorDataset(torch.ones(8 * 4000, 4))

def compute_loss(model, batch):
    time.sleep(0.002)
    return model(batch[0]).square().mean()
"""


@pytest.fixture(scope="module")
def boundaries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boundary")
    model = written(folder, SOURCE, "model.py")

    def boundaries(runner, **settings):
        outcome = runner.run(job_for(model, settings, task=SHORT), folder / "trial")
        assert isinstance(outcome, Measured)
        return outcome.measurement.boundary_seconds

    with SubprocessRunner(folder / "inductor") as runner:
        yield lambda **settings: boundaries(runner, **settings)


def test_workers_that_persist_are_quicker_from_epoch_to_epoch(boundaries):
    anew = boundaries(num_workers=2, persistent_workers=False)
    persistent = boundaries(num_workers=2, persistent_workers=True)
    assert len(anew) == len(persistent) == 1
    assert max(persistent) < min(anew)


def test_without_workers_nothing_lies_between_epochs(boundaries):
    assert boundaries(num_workers=0) == ()
