"""Every fifth step computes twenty times as much: its seconds are part of the throughput."""

import pytest

from asked_scripts import Ask
from autotune.configuration.job import Measure, MeasurePlan
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured
from children import job_for
from tiers import late

PLAN = MeasurePlan(block_seconds=0.1, looks=(6,), max_seconds=1.0)
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


def measured(outcome):
    assert isinstance(outcome, Measured), outcome
    return outcome.measurement


@pytest.mark.parametrize("timed", [of_model, late(of_script)])
def test_slow_steps_count_for_the_seconds_that_they_take(timed, tmp_path):
    with SubprocessRunner(tmp_path / "inductor") as runner:
        run = measured(timed(runner, tmp_path))
    steps = run.steps
    assert steps.is_uneven
    assert steps.slow / steps.count == pytest.approx(1 / 5, abs=0.12)
    assert steps.slow >= 4, "the timing went on until it had seen them often enough"
    assert 32 / run.samples_per_second > 2 * steps.median_seconds
