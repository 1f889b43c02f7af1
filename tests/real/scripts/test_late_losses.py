"""A script whose loss falls late trains until then in every probe, as far as there is time."""

from dataclasses import replace

import pytest

from asked_scripts import Ask, observed
from autotune.configuration.job import Observe, Probe
from autotune.configuration.script import ScriptOptions
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import ObservedLoss
from factories import written
from scripted_runner import LOSSES, SEEN, ScriptedRunner, at, events_of, unstored_in

SPACE = "amp_dtype: [null, bfloat16]\n"
BATCH = 4
STILL = 60
"""Steps before its loss begins to fall."""
LATE = f"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step >= {STILL}))
while True:
    x = torch.randn({BATCH}, 8)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), 3 * x.sum(1, keepdim=True)).backward()
    optimizer.step()
    warmup.step()
"""


@pytest.mark.parametrize(
    ("fell_after", "budget", "samples"),
    [
        *((None, None, 608), (300, None, 608), (2000, None, 2000), (2000, 600.0, 2000)),
        *((2000, 240.0, 1600), (60_000, None, 6000)),
    ],
    ids=["unknown", "early", "late", "late, long budget", "late, short budget", "too late"],
)
def test_a_probe_trains_until_the_loss_had_fallen_if_there_is_time(
    tmp_path, fell_after, budget, samples
):
    """At 100 samples a second, 600 are six seconds; a batch is 16."""
    loss = ObservedLoss("", LOSSES.losses, moves=LOSSES.moves, fell_after=fell_after)
    runner = ScriptedRunner(lambda *_: at(100), lambda *_: 1.0, observed=replace(SEEN, loss=loss))
    changes = {} if budget is None else {"time_budget_seconds": budget}
    events_of(unstored_in(tmp_path, SPACE, script=ScriptOptions(()), **changes), runner)
    asked = [job.task.samples for job in runner.jobs if isinstance(job.task, Probe)]
    assert asked
    assert set(asked) == {samples}


@pytest.fixture
def ask(tmp_path):
    with SubprocessRunner(tmp_path / "inductor") as children:
        yield Ask(children, tmp_path / "trial")


def test_the_observed_run_tells_after_how_many_samples_the_loss_had_fallen(tmp_path, ask):
    script = str(written(tmp_path, LATE, "late.py"))
    seen = observed(ask(script, task=Observe(loss_seconds=10.0)))
    assert seen.loss.doubt == ""
    assert seen.loss.fell_after is not None
    assert BATCH * STILL < seen.loss.fell_after <= BATCH * 4 * STILL


def test_a_loss_that_does_not_fall_tells_none(tmp_path, ask):
    script = str(written(tmp_path, LATE.replace("lr=0.05", "lr=0.0"), "still.py"))
    seen = observed(ask(script, task=Observe(loss_seconds=0.5)))
    assert seen.loss.doubt
    assert seen.loss.fell_after is None
