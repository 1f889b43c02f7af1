"""The places of torch that are taken beside a script: what changes, and what does not."""

import copy
import importlib.util
import pickle
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import pytest
import torch
from torch import nn, optim

from autotune.process.common.imports import AfterImport, undo_all
from autotune.scripting.wrappers import change_optimizers, in_float32, under_autocast

Model = TypeVar("Model", bound=nn.Module)
FUSABLE = (optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad)


@pytest.fixture
def failures():
    """Let optimizers be fused from now on, collect their refusals, and restore them at the end."""
    found = []
    change_optimizers({"fused": True}, False, lambda name, error: found.append(f"{name}: {error}"))
    yield found
    undo_all()


def parameters():
    return iter(nn.Linear(2, 2).parameters())


@pytest.mark.parametrize("kind", FUSABLE)
def test_an_optimizer_is_fused_where_the_script_says_nothing(kind, failures):
    assert kind(parameters(), lr=0.5).param_groups[0]["fused"] is True
    assert kind(parameters(), lr=0.5).param_groups[0]["lr"] == 0.5
    assert not failures


def test_an_optimizer_that_the_script_decided_on_stays(failures):
    assert optim.AdamW(parameters(), fused=False).param_groups[0]["fused"] is False
    assert "fused" not in optim.LBFGS(parameters()).param_groups[0]
    assert not failures


def test_an_optimizer_that_refuses_is_built_as_the_script_wrote_it(failures):
    built = optim.AdamW(parameters(), foreach=True)
    assert not built.param_groups[0]["fused"]
    assert len(built.param_groups[0]["params"]) == 2
    # Said by AdamW and by Adam, which it builds on.
    assert {failure.partition(":")[0] for failure in failures} == {"optimizer_impl"}


def test_the_scripts_own_mistakes_stay_its_own(failures):
    with pytest.raises(ValueError, match="Invalid learning rate"):
        optim.SGD(parameters(), lr=-1.0)
    with pytest.raises(TypeError, match="params"):
        optim.SGD()


class Halves(nn.Module):
    """Says in which format it computes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        out = self.layer(x)
        return out, out.dtype


@pytest.fixture
def halves():
    return in_halves(Halves())


def in_halves(model, failed=print):
    """The model, under autocast from now on."""

    def autocast(device):
        return torch.autocast(device.type, torch.bfloat16)

    under_autocast(model, autocast, lambda _: None, failed)
    return model


def test_a_model_under_autocast_computes_in_bfloat16_and_gives_float32(halves):
    out, inside = halves(torch.ones(1, 2))
    assert (out.dtype, inside) == (torch.float32, torch.bfloat16)


def test_an_evaluation_keeps_its_precision(halves):
    with torch.no_grad():
        assert halves(torch.ones(1, 2))[1] == torch.float32


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_and_checkpoints_know_nothing_of_it(halves, again):
    assert again(halves)(torch.ones(1, 2))[1] == torch.float32
    assert list(halves.state_dict()) == ["layer.weight", "layer.bias"]


class Sealed(dict[str, torch.Tensor]):
    """A container whose numbers cannot be replaced."""

    def __copy__(self):
        raise TypeError("there is one of me")


class Seals(Halves):
    def forward(self, x):
        return Sealed(y=self.layer(x))


def test_a_result_that_cannot_be_lengthened_is_given_as_it_is_and_the_model_runs_as_it_was():
    failures = []
    model = in_halves(Seals(), failures.append)
    formats = [model(torch.ones(1, 2))["y"].dtype for _ in range(2)]
    assert formats == [torch.bfloat16, torch.float32]
    assert list(map(str, failures)) == ["there is one of me"]


class Pair(NamedTuple):
    loss: torch.Tensor
    name: str


def test_every_short_number_in_a_result_is_lengthened():
    short = torch.ones(1, dtype=torch.bfloat16)
    whole = torch.ones(1, dtype=torch.int64)
    found = in_float32(OrderedDict(a=[short, (whole, None)], b=Pair(short, "x")))
    assert type(found) is OrderedDict
    assert found["a"][0].dtype == torch.float32
    assert found["a"][1] == (whole, None)
    assert (type(found["b"]), found["b"].loss.dtype) == (Pair, torch.float32)


class Both(tuple[torch.Tensor, ...]):
    """Takes its parts one by one."""

    def __new__(cls, *parts):
        return super().__new__(cls, parts)


@dataclass(frozen=True)
class Output:
    loss: torch.Tensor
    parts: Both
    name: str = "x"


def test_a_result_of_the_scripts_own_kind_keeps_its_kind():
    short = torch.ones(1, dtype=torch.bfloat16)
    both = Both(short, short)
    both.epoch = 3
    given = Output(short, both)
    found = in_float32(given)
    assert (type(found), type(found.parts), found.name) == (Output, Both, "x")
    assert [n.dtype for n in (found.loss, *found.parts)] == [torch.float32] * 3
    assert (len(found.parts), found.parts.epoch) == (2, 3)
    assert given.loss is short, "what the model holds on to stays"
    assert in_float32(torch.max(short[None], 0)).values.dtype == torch.float32


def test_a_call_comes_right_after_an_import(tmp_path, monkeypatch):
    (tmp_path / "imported_late.py").write_text("ready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    AfterImport("imported_late", lambda: seen.append(sys.modules["imported_late"].ready))
    assert importlib.util.find_spec("imported_late") is not None, "to ask is not to import"
    before = list(seen)
    import imported_late  # noqa: F401

    assert (before, seen) == ([], [True])
    AfterImport("imported_late", lambda: seen.append(True))
    assert seen == [True, True]
