"""Boundaries of epochs and steps of unequal length, timed by real children."""

import pytest

from asked_scripts import Ask
from autotune.configuration.job import Measure, MeasurePlan
from autotune.process.runner import SubprocessRunner
from children import job_for, measured
from factories import written
from tiers import late

SHORT = Measure(MeasurePlan(warmup_steps=1, block_seconds=0.02, block_counts=(6,), max_seconds=1.0))
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
def trained(runner, folder):
    def trained(dataset, **settings):
        model = written(folder, SOURCES[dataset], f"{dataset.replace(' ', '_')}.py")
        return measured(runner.run(job_for(model, settings, task=SHORT), folder / "trial"))

    return trained


@pytest.mark.parametrize("dataset", ["map", late("stream with a length")])
def test_workers_that_persist_are_quicker_from_epoch_to_epoch(dataset, trained):
    anew = trained(dataset, num_workers=2, persistent_workers=False)
    persistent = trained(dataset, num_workers=2, persistent_workers=True)
    assert len(anew.boundary_seconds) == len(persistent.boundary_seconds) == 1
    assert max(persistent.boundary_seconds) < min(anew.boundary_seconds)
    assert anew.epoch_samples == persistent.epoch_samples == 8 * 4000
    assert "no_boundary" not in (*anew.flags, *persistent.flags)


def test_a_stream_that_does_not_tell_how_long_an_epoch_is_says_that_none_is_charged(trained):
    run = trained("stream", num_workers=2, persistent_workers=False)
    assert run.boundary_seconds == ()
    assert run.epoch_samples is None
    assert "no_boundary" in run.flags


def test_all_workers_begin_a_short_epoch_at_once(trained, folder):
    """Two load while training is timed, and two in each epoch on both sides of the boundary."""
    trained("noted", num_workers=2, persistent_workers=False)
    # The last one may be ended before it has loaded. One after the other, there would be four.
    assert len(list(folder.glob("worker-*"))) >= 5


PLAN = MeasurePlan(block_seconds=0.1, block_counts=(6,), max_seconds=1.0)
MODEL = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

class Model(nn.Linear):
    steps = 0

    def forward(self, x):
        self.steps += 1
        y = torch.ones(192, 192)
        for _ in range(20 * 20 if self.steps % 5 == 0 else 20):
            y = torch.tanh(y @ y)
        return super().forward(x) + 0 * y.mean()

def build_model():
    return Model(4, 1)

def build_dataset():
    return TensorDataset(torch.ones(4096, 4))

def compute_loss(model, batch):
    return model(batch[0]).square().mean()
"""
SCRIPT = """
from torch.utils.data import DataLoader

model = build_model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(1000):
    for batch in DataLoader(build_dataset(), batch_size=32):
        optimizer.zero_grad()
        compute_loss(model, batch).backward()
        optimizer.step()
"""


def of_model(runner, folder):
    path = folder / "model.py"
    path.write_text(MODEL)
    return runner.run(job_for(path, {"batch_size": 32}, Measure(PLAN)), folder / "trial")


def of_script(runner, folder):
    path = folder / "train.py"
    path.write_text(MODEL + SCRIPT)
    return Ask(runner, folder / "trial")(str(path), task=Measure(PLAN))


@pytest.mark.parametrize("timed", [of_model, late(of_script)])
def test_slow_steps_count_for_the_seconds_that_they_take(timed, tmp_path):
    with SubprocessRunner(tmp_path / "inductor") as runner:
        run = measured(timed(runner, tmp_path))
    steps = run.steps
    assert steps.is_uneven
    assert steps.slow / steps.count == pytest.approx(1 / 5, abs=0.12)
    assert steps.slow >= 4, "the timing went on until it had seen them often enough"
    assert 32 / run.samples_per_second > 2 * steps.median_seconds
