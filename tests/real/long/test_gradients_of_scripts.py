"""Gradients of real scripts under settings that only round, and a search that they alone judge."""

import math
from functools import partial

from asked_scripts import Ask
from autotune.configuration.best_config import read_best
from autotune.configuration.job import TakeFirstSteps
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import FirstLosses
from children import autotune, hurried, succeeded
from factories import written

PATTERNS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
    nn.Linear(8 * 36, 5),
)
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(256, 3, 8, 8), torch.randint(5, (256,)))
for _ in range(10_000):
    for x, y in DataLoader(data, batch_size=16):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
NEVER_FALLS = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
is_fused = lambda: optimizer.param_groups[0].get("fused")
optimizer.register_step_pre_hook(lambda *_: time.sleep(0.0 if is_fused() else 0.01))
data = TensorDataset(torch.randn(256, 8), torch.randint(2, (256,)))
for _ in range(10_000):
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def steps_of(ask, script, draws_as_eager=False, **settings):
    """The first ten steps of a script under these settings."""
    task = TakeFirstSteps(10, draws_as_eager=draws_as_eager)
    found = ask(str(script), task=task, settings=settings, asked=tuple(settings))
    assert isinstance(found, FirstLosses), found
    return found


def off(found, own):
    return math.dist(found, own) / math.hypot(*own)


def test_gradients_of_another_layout_and_of_compiled_dropout_differ_by_rounding(tmp_path):
    script = written(tmp_path, PATTERNS, "train.py")
    with SubprocessRunner(tmp_path / "inductor") as runner:
        steps = partial(steps_of, Ask(runner, tmp_path / "trial"), script)
        own = steps()
        assert steps().sums.gradients == own.sums.gradients
        assert steps(channels_last=True).sums.gradients != own.sums.gradients
        assert off(steps(channels_last=True).sums.gradients, own.sums.gradients) < 1e-3
        fused = steps(optimizer_impl="fused")
        assert off(fused.sums.update, own.sums.update) < 1e-3
        compiled = steps(draws_as_eager=True, compile_mode="default")
        assert off(compiled.sums.settled_gradients, own.sums.settled_gradients) < 1e-3
        other_masks = steps(compile_mode="default")
        assert other_masks.sums.gradients == own.sums.gradients, (
            "it is not compiled in the first step"
        )
        assert off(other_masks.sums.settled_gradients, own.sums.settled_gradients) > 0.1


def test_a_fused_optimizer_is_found_and_applied_where_no_loss_judges(tmp_path):
    script = written(tmp_path, NEVER_FALLS, "train.py")
    space = written(tmp_path, "optimizer_impl: [null, fused]\namp_dtype: [null, bfloat16]\n")
    done = succeeded(hurried(tmp_path, "search", script, "--space", space, "--trials", "2"))
    why = "trying only settings that preserve results or gradients; the training"
    assert why in " ".join(done.stderr.split())
    path = tmp_path / "studies" / "train" / "best.yaml"
    best = read_best(path)
    assert best.config["optimizer_impl"] == "fused"
    assert best.config["amp_dtype"] is None
    assert best.constraints.accuracy.evidence == "numerical check"
    shown = autotune(tmp_path, "run", path, "--print-command", script)
    assert '"optimizer_impl": "fused"' in shown.stdout
