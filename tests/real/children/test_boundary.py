"""The time between two epochs is charged though no epoch ended while training was timed."""

import pytest

from autotune.configuration.job import Measure, MeasurePlan
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured
from children import job_for
from factories import written
from tiers import late

SHORT = Measure(MeasurePlan(warmup_steps=1, block_seconds=0.02, looks=(6,), max_seconds=1.0))
SOURCE = """
import time, torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

def build_model():
    return nn.Linear(4, 1)

def build_dataset():
    return TensorDataset(torch.ones(8 * 4000, 4))

def compute_loss(model, batch):
    time.sleep(0.002)
    return model(batch[0]).square().mean()
"""
STREAM = """
class Stream(IterableDataset):
    def __iter__(self):
        return ((torch.ones(4),) for _ in range(8 * 4000))

def build_dataset():
    return Stream()
"""
LENGTH = """
Stream.__len__ = lambda self: {samples}
"""
NOTED = """
import os
from pathlib import Path
from torch.utils.data import Dataset, get_worker_info

class Noted(Dataset):
    def __len__(self):
        return 8 * 4000

    def __getitem__(self, index):
        if get_worker_info() is not None:
            Path(__file__).with_name(f"worker-{os.getpid()}").touch()
        return (torch.ones(4),)

def build_dataset():
    return Noted()
"""
SOURCES = {
    "map": SOURCE,
    "noted": SOURCE + NOTED,
    "stream": SOURCE + STREAM,
    "stream with a length": SOURCE + STREAM + LENGTH.format(samples=8 * 4000),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("boundary")


@pytest.fixture(scope="module")
def measured(folder):
    def measured(runner, dataset, **settings):
        model = written(folder, SOURCES[dataset], f"{dataset.replace(' ', '_')}.py")
        outcome = runner.run(job_for(model, settings, task=SHORT), folder / "trial")
        assert isinstance(outcome, Measured), outcome
        return outcome.measurement

    with SubprocessRunner(folder / "inductor") as runner:
        yield lambda dataset, **settings: measured(runner, dataset, **settings)


@pytest.mark.parametrize("dataset", ["map", late("stream with a length")])
def test_workers_that_persist_are_quicker_from_epoch_to_epoch(dataset, measured):
    anew = measured(dataset, num_workers=2, persistent_workers=False)
    persistent = measured(dataset, num_workers=2, persistent_workers=True)
    assert len(anew.boundary_seconds) == len(persistent.boundary_seconds) == 1
    assert max(persistent.boundary_seconds) < min(anew.boundary_seconds)
    assert anew.epoch_samples == persistent.epoch_samples == 8 * 4000
    assert "no_boundary" not in (*anew.flags, *persistent.flags)


def test_a_stream_that_does_not_tell_how_long_an_epoch_is_says_that_none_is_charged(measured):
    run = measured("stream", num_workers=2, persistent_workers=False)
    assert run.boundary_seconds == ()
    assert run.epoch_samples is None
    assert "no_boundary" in run.flags


def test_all_workers_begin_a_short_epoch_at_once(measured, folder):
    """Two load while training is timed, and two in each epoch on both sides of the boundary."""
    measured("noted", num_workers=2, persistent_workers=False)
    # The last one may be ended before it has loaded. One after the other, there would be four.
    assert len(list(folder.glob("worker-*"))) >= 5
