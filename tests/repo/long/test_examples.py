"""The example workloads under studies/ that need no network train as they are, without autotune."""

import importlib.util
import math
import sys
from itertools import chain, islice, repeat
from pathlib import Path

import pytest
import torch

from needs import library

STUDIES = Path(__file__).parents[3] / "studies"
NEEDS = {
    "digits_cnn": ["sklearn"],
    "photos_jpeg": ["PIL", "sklearn", "torchvision"],
    "char_transformer": [],
    "tabular_mlp": ["sklearn"],
    "chirp_gru": [],
    "pendulum_ode": [],
}


@pytest.fixture
def load(monkeypatch):
    """Import an example by path."""

    def load(name):
        for needed in NEEDS[name]:
            library(needed)
        spec = importlib.util.spec_from_file_location(name, STUDIES / name / "model.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)  # pickle looks classes up there
        spec.loader.exec_module(module)
        return module

    return load


def train(workload, model, steps):
    """Take so many optimizer steps on the CPU with the baseline's batch size; the losses."""
    build = getattr(workload, "build_optimizer", lambda p: torch.optim.AdamW(p, lr=1e-3))
    optimizer = build(model.parameters())
    loader = torch.utils.data.DataLoader(
        workload.build_dataset(), workload.BASELINE["batch_size"], shuffle=True, drop_last=True
    )
    losses = []
    for batch in islice(chain.from_iterable(repeat(loader)), steps):
        optimizer.zero_grad()
        loss = workload.compute_loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(autouse=True)
def _one_seed_and_one_thread():
    """Same numbers every time; threads that wait for a busy core make a step 10 times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NEEDS)
def test_three_steps_give_finite_losses_and_change_every_parameter(load, name):
    workload = load(name)
    model = workload.build_model()
    before = [parameter.detach().clone() for parameter in model.parameters()]

    losses = train(workload, model, steps=3)

    assert len(losses) == 3
    assert all(math.isfinite(loss) for loss in losses)
    assert not any(map(torch.equal, before, model.parameters()))
