"""A compiled model in production: evaluations run eager, and what is kept stays what it was."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.production import Best
from autotune.scripting.wrappers import or_eager, under_autocast
from children import autotune
from factories import best_config

SCRIPTS = Path(__file__).parents[2] / "scripts"
BASELINE = TrainingConfig.of({"batch_size": 16})
GRAPHS = BASELINE.replace(compile_mode="reduce-overhead")


class Says(nn.Module):
    """Says whether it was compiled."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x), torch.compiler.is_compiling()


@pytest.fixture
def prepared():
    """A model that trains compiled."""
    torch._dynamo.reset()
    counters.clear()
    model = Best(best_config(GRAPHS, BASELINE)).prepare(Says())
    assert isinstance(model, Says)
    out, compiled = model(torch.ones(8, 4))
    out.sum().backward()
    assert compiled
    return model


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_evaluation_runs_eager_whatever_its_batches(prepared, mode):
    graphs = counters["stats"]["unique_graphs"]
    prepared.eval()
    with mode():
        kept = [prepared(torch.full((size, 4), float(size))) for size in (8, 3, 5, 1)]
    assert [compiled for _, compiled in kept] == [False] * 4
    assert len({out.data_ptr() for out, _ in kept}) == 4
    assert counters["stats"]["unique_graphs"] == graphs
    assert prepared.train()(torch.ones(8, 4))[1], "training goes on as compiled"
    assert counters["stats"]["unique_graphs"] == graphs


class Pair(NamedTuple):
    logits: Tensor
    parts: dict[str, list[Tensor]]


class Replayed(torch.autograd.Function):
    """Gives numbers in memory that the next call writes to, as a CUDA graph does."""

    @staticmethod
    def forward(ctx, computed, memory):
        memory.data.copy_(computed)
        return memory.data

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0], None


class Captured(nn.Module):
    """Compiles to something that behaves as CUDA graphs do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.memory = torch.zeros(2, 1)

    def forward(self, x):
        out = self.layer(x)
        return Pair(out, {"parts": [out]})

    def compile(self, *args, **kwargs):
        def replay(x):
            out = Replayed.apply(self.layer(x), self.memory)
            return Pair(out, {"parts": [out.detach()]})

        self._compiled_call_impl = replay


def in_production(model):
    return Best(best_config(GRAPHS, BASELINE)).prepare(model)


def in_a_script(model):
    """As `autotune run` has it, autocast in float32 included, which lengthens nothing."""
    in_production(model)
    or_eager(model, pytest.fail)
    context = partial(torch.autocast, dtype=torch.bfloat16, enabled=False)
    under_autocast(model, lambda device: context(device.type), lambda _: None, pytest.fail)
    return model


@pytest.mark.parametrize("prepare", [in_production, in_a_script])
def test_kept_outputs_of_training_stay_what_they_were(prepare):
    model = prepare(Captured())
    batches = [torch.full((2, 4), float(n)) for n in range(3)]
    kept = [model(batch) for batch in batches]
    for batch, out in zip(batches, kept, strict=True):
        expected = model._call_impl(batch).logits
        assert torch.equal(out.logits, expected)
        assert torch.equal(out.parts["parts"][0], expected)
    sum(out.logits.sum() for out in kept).backward()
    assert torch.equal(model.layer.weight.grad, torch.full((1, 4), 2.0 * (0 + 1 + 2)))


@pytest.mark.parametrize("prepare", [in_production, in_a_script])
def test_kept_outputs_of_an_evaluation_stay_what_they_were(prepare):
    model = prepare(Captured())
    with torch.inference_mode():
        kept = [model(torch.full((2, 4), float(n))).logits for n in range(3)]
    assert len({tuple(out.flatten().tolist()) for out in kept}) == 3


def test_a_script_that_keeps_what_its_model_gave_finds_it_as_it_was(tmp_path):
    """Under what fakes CUDA graphs; tests/gpu has the same script really compiled."""
    path = tmp_path / "best.yaml"
    write_best(best_config(GRAPHS, BASELINE), path)
    script = SCRIPTS / "keeps_outputs.py"
    done = autotune(tmp_path, "run", path, "--allow-numerics", script, "captured", "cpu")
    assert done.stdout.splitlines() == [
        *("training: compiled True, kept True", "accumulation: kept True"),
        *("evaluation: compiled False, kept True", "evaluation with gradients: kept True"),
    ], done.stderr
