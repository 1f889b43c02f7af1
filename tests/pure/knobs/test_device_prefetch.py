"""Memory that is used again: batches copied ahead on a stream, gradients of CUDA graphs."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.compile import GraphGradients
from autotune.knobs.loader import CopiedAhead
from autotune.production import Best
from autotune.training.batches import Batches
from autotune.values.errors import UsageError
from factories import best_config, cpu_machine, cuda_machine

CPU = torch.device("cpu")


class Streams:
    """A device's streams that write down what is queued on them."""

    def __init__(self):
        self.log: list[str] = []
        self.events = 0
        self._current = _Stream("current", self)

    def Stream(self, device: torch.device) -> _Stream:  # noqa: N802
        return _Stream("side", self)

    def current_stream(self, device):
        return self._current

    @contextmanager
    def stream(self, stream):
        before, self._current = self._current, stream
        yield
        self._current = before

    def copy(self, batch):
        self.log.append(f"copy {batch} on {self._current.name}")
        return [batch]


class _Stream:
    def __init__(self, name, of):
        self.name, self._of = name, of

    def wait_stream(self, other):
        self._of.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event):
        self._of.log.append(f"{self.name} waits for {event}")

    def record_event(self):
        self._of.events += 1
        return f"event {self._of.events}"


def ahead(batches, streams):
    return CopiedAhead(batches, streams.copy, CPU, streams)


def test_a_step_waits_for_its_own_batch_while_the_next_one_is_copied():
    streams = Streams()
    for batch in ahead(iter("ab"), streams):
        streams.log.append(f"step on {batch[0]}")
    assert streams.log == [
        *("side waits for current", "copy a on side", "copy b on side"),
        *("current waits for event 1", "step on a"),
        # Memory of a is free for later copies only after this step.
        *("side waits for current", "current waits for event 2", "step on b"),
        "side waits for current",
    ]


def test_every_batch_comes_once_and_in_order_however_many_there_are():
    for count in range(4):
        assert [n for (n,) in ahead(iter(range(count)), Streams())] == list(range(count))


def test_an_error_of_the_loader_is_raised():
    def breaks():
        yield 0
        raise ValueError("a sample cannot be read")

    with pytest.raises(ValueError, match="a sample cannot be read"):
        next(ahead(breaks(), Streams()))


def test_a_batch_that_was_given_is_kept_until_the_next_one_is_asked_for():
    copies = weakref.WeakSet()

    def copy(_):
        copies.add(made := _Copy())
        return made

    batches = CopiedAhead(iter("abc"), copy, CPU, Streams())
    next(batches)
    assert len(copies) == 2, "the one in use, though nobody else holds it, and the next"
    next(batches)
    assert len(copies) == 2


class _Copy:
    pass


def test_it_is_in_force_while_batches_are_copied_ahead_and_no_longer():
    class Setup:
        device = CPU

    setup = Setup()
    batches = ahead(iter("abc"), Streams())
    assert KNOBS["device_prefetch"].read_back(setup) is False
    next(batches)
    assert KNOBS["device_prefetch"].read_back(setup) is True
    del batches
    assert KNOBS["device_prefetch"].read_back(setup) is False


def test_batches_of_a_timing_pass_through_it_in_every_epoch():
    fed = []

    def feed(batches):
        fed.append(batches)
        return map(str, batches)

    batches = Batches([1, 2], lambda: 0.0, lambda: None, feed)
    iterator = iter(lambda: next(batches), None)
    assert [next(iterator) for _ in range(5)] == ["1", "2", "1", "2", "1"]
    assert len(fed) == 3


def test_without_it_batches_of_a_result_are_moved_one_by_one():
    config = TrainingConfig.of({"batch_size": 4})
    best = Best(best_config(config, config))
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4)
    assert [batch[0].tolist() for batch in best.batches(loader, "cpu")] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


def test_an_epoch_of_a_result_has_the_batches_of_whole_steps():
    config = TrainingConfig.of({"batch_size": 2, "accumulation_steps": 4})
    best = Best(best_config(config, config))
    loader = DataLoader(TensorDataset(torch.arange(26)), batch_size=2)
    for _ in range(2):
        assert [int(batch[0][0]) for batch in best.batches(loader, "cpu")] == list(range(0, 24, 2))
    assert len(list(best.batches(map(list, loader), "cpu"))) == 13, "of no known length"
    short = DataLoader(TensorDataset(torch.arange(6)), batch_size=2)
    with pytest.raises(UsageError, match="3 batches, and an optimizer step takes 4"):
        next(best.batches(short, "cpu"))


def test_a_machine_without_streams_refuses_it_with_its_reason():
    knob = KNOBS["device_prefetch"]
    assert knob.suggestions(cuda_machine()) == (False, True)
    assert knob.obstacle(True, cpu_machine()) == "there is no accelerator to copy to"
    apple = replace(cuda_machine(), device="mps:0")
    assert knob.obstacle(True, apple) == "mps has no streams for the copies"


def learnt(model):
    """Give each parameter a gradient, as a backward pass does, and return them."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    return gradients(model)


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def test_each_new_gradient_is_copied_once():
    model = nn.Linear(2, 1)
    kept = GraphGradients(model)
    kept.copy_out(model.parameters())
    written = learnt(model)
    kept.copy_out(model.parameters())
    copies = gradients(model)
    assert all(copies[name] is not written[name] for name in copies)
    kept.copy_out(model.parameters())
    assert all(gradients(model)[name] is copies[name] for name in copies)


def test_a_call_of_one_block_copies_the_gradients_of_all():
    """All graphs of a device write again as soon as one of them runs."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    kept = GraphGradients(model)
    kept.copy_out(model[0].parameters())
    written = learnt(model)
    kept.copy_out(model[0].parameters())
    assert all(gradients(model)[name] is not written[name] for name in written)


def test_gradients_in_memory_of_the_users_own_stay_there():
    """Some loops lay them out once, zero the memory and read it."""
    before, after = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
    flat = torch.zeros(2)
    for model, is_first in ((before, True), (after, False)):
        kept = GraphGradients(model)
        if not is_first:
            kept.copy_out(model.parameters())
        model.weight.grad = flat.view_as(model.weight)
        kept.copy_out(model.parameters())
        assert model.weight.grad.data_ptr() == flat.data_ptr()


def test_parameters_that_train_later_are_copied_too():
    model = nn.Linear(2, 1).requires_grad_(False)
    kept = GraphGradients(model)
    kept.copy_out(parameters := list(model.parameters()))
    model.requires_grad_(True)
    written = learnt(model)
    kept.copy_out(parameters)
    assert all(gradients(model)[name] is not written[name] for name in written)
