"""A script's loaders get settings in this very process, or keep what they had."""

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.loader import PinMemory
from autotune.process.common.imports import undo_all
from autotune.scripting.interpose import Interposition
from autotune.scripting.loaders import BatchStream, TrainingLoaders
from autotune.scripting.observed_training import ModelCalls, ObservedTraining
from autotune.scripting.wrappers import under_autocast

FAILED = {}


@pytest.fixture
def loaders():
    """Loaders that are watched from now on; afterwards torch is as it was."""
    FAILED.clear()
    asked = frozenset({"pin_memory"})
    watched = TrainingLoaders(
        TrainingConfig.of({}),
        asked,
        ObservedTraining(),
        lambda name, error: FAILED.update({name: str(error)}),
    )
    watched.watch()
    yield watched
    undo_all()


def test_a_hook_that_fails_leaves_the_loader_as_it_was(loaders, monkeypatch):
    def fails(*_):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(PinMemory, "loader_kwargs", fails)
    loader = DataLoader(list(range(8)), batch_size=4)
    assert [len(batch) for batch in loader] == [4, 4]
    assert FAILED["pin_memory"] == "a fault of ours"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_batch_that_does_not_say_its_size_is_given_all_the_same(loaders):
    def nest(samples):
        return torch.nested.nested_tensor(samples)

    feed = BatchStream(lambda: None, ModelCalls(), loaders)
    data = [torch.ones(n + 1, 2) for n in range(8)]
    loader = DataLoader(data, batch_size=4, collate_fn=nest)
    for _ in loader:
        loaders.stepped()
        feed.stepped()
    assert (feed.steps, feed.samples) == (2, 8)


def test_batches_that_are_read_without_gradients_feed_no_step(loaders):
    loader = DataLoader(list(range(8)), batch_size=4)
    with torch.no_grad():
        next(iter(loader))
    assert not loaders.gave
    next(iter(loader))
    assert loaders.gave


def test_reading_what_was_compiled_of_a_model_under_autocast_harms_nobody(monkeypatch):
    """The script has compiled something, its loss perhaps, so there is a graph."""
    seen, model = ObservedTraining(), nn.Linear(2, 2)
    seen.model = model
    nobody = [].append
    under_autocast(model, lambda d: torch.autocast(d.type, torch.bfloat16), nobody, nobody)
    monkeypatch.setitem(counters["stats"], "unique_graphs", 1)
    assert seen.read(KNOBS["compile_mode"]) is None


def steps(seen, *optimizers):
    """Return True for each of these steps that counts."""
    found = []
    for optimizer in optimizers:
        seen.stepped(optimizer)
        found.append(seen.counts(optimizer))
    return found


def test_the_first_of_two_alternating_optimizers_counts():
    critic, generator = (torch.optim.SGD(nn.Linear(2, 2).parameters()) for _ in range(2))
    both = [generator, *[critic] * 100]
    assert steps(ObservedTraining(), *both * 2) == [True, *[False] * 100] * 2


def test_an_optimizer_inside_another_does_not_count_twice():
    weights = nn.Linear(2, 2)
    inner, outer = (torch.optim.SGD(weights.parameters()) for _ in range(2))
    assert steps(ObservedTraining(), inner, outer, inner, outer) == [True, False, True, False]


def test_one_that_takes_over_the_parameters_counts_from_its_second_step_on():
    body, head = nn.Linear(2, 2), nn.Linear(2, 2)
    first = torch.optim.SGD(head.parameters())
    second = torch.optim.SGD([*body.parameters(), *head.parameters()])
    seen = ObservedTraining()
    assert steps(seen, first, second, second, second) == [True, False, True, True]
    assert seen.changes == 1


def test_a_knob_that_is_asked_for_as_off_is_read_back():
    config = TrainingConfig.of({})
    found = Interposition(config, frozenset({"amp_dtype", "num_threads"}))
    model = nn.Linear(2, 2)
    found.observed.model, found.observed.autocast_dtype = model, torch.bfloat16
    assert found.overridden() == {"amp_dtype": (None, "bfloat16")}, "null threads are torch's own"
