"""The batches that a script takes from its loaders, in this very process, and their samples."""

import queue
import sys
import threading
import time
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler, SequentialSampler

from autotune.configuration.training_config import TrainingConfig
from autotune.process.common.imports import undo_all
from autotune.scripting.loaders import BatchStream, TrainingLoaders
from autotune.scripting.observed_training import ModelCalls, ObservedTraining

SECONDS = 0.02
"""Time of an evaluation for each batch; it looks at two at least."""
NUMBERS = [torch.ones(4) for _ in range(32)]
EIGHT = [torch.ones(4) for _ in range(64)]
"""Samples of eight batches."""


class Endless(Sampler[int]):
    """A sampler without a length, as those of endless trainings are."""

    def __iter__(self):
        while True:
            yield from range(len(NUMBERS))


@pytest.fixture
def stream():
    """A stream that listens from now on; afterwards torch is as it was."""
    loaders = TrainingLoaders(
        TrainingConfig.of({}), frozenset(), ObservedTraining(), lambda *_: None
    )
    loaders.watch()
    yield BatchStream(lambda: None, ModelCalls(), loaders)
    undo_all()


def trained_on_a_batch(stream):
    """One backward pass and a step."""
    passed(stream)
    stream.stepped()


def trained(stream, epochs=1):
    """Return a training on a loader, with a step for each batch."""

    def train(loader):
        for _ in range(epochs):
            for _ in loader:
                trained_on_a_batch(stream)

    return train


def evaluated_around(loader):
    with torch.no_grad():
        for _ in loader:
            time.sleep(SECONDS)


def evaluated_inside(loader):
    for _ in loader:
        with torch.no_grad():
            time.sleep(SECONDS)


def evaluated_in_part(loader):
    for n, _ in enumerate(loader):
        time.sleep(SECONDS)
        if n == 1:
            return


EVALUATIONS = [evaluated_around, evaluated_inside, evaluated_in_part]


@pytest.mark.parametrize("evaluate", EVALUATIONS)
@pytest.mark.parametrize("workers", [0, 1])
def test_an_evaluation_on_the_training_loader_is_no_training(stream, evaluate, workers):
    loader = DataLoader(
        NUMBERS, batch_size=8, num_workers=workers, persistent_workers=bool(workers)
    )
    evaluate(loader)
    for epoch in range(3):
        trained(stream)(loader)
        assert len(stream.boundary_seconds) == epoch
        before, start = stream.clock(), time.perf_counter()
        evaluate(loader)
    assert (stream.samples, stream.steps, stream.batches) == (96, 12, 12)
    assert stream.samples_per_step == 8
    assert stream.accumulation_steps == 1
    assert stream.epoch_batches == 4
    trained(stream)(loader)
    left_out = (time.perf_counter() - start) - (stream.clock() - before)
    assert stream.samples == 128
    assert left_out >= 2 * SECONDS


@pytest.mark.parametrize("evaluate", EVALUATIONS)
def test_an_evaluation_in_the_middle_of_an_epoch_leaves_it_as_it_was(stream, evaluate):
    loader = DataLoader(NUMBERS, batch_size=8)
    for _ in range(2):
        for n, _ in enumerate(loader):
            trained_on_a_batch(stream)
            if n == 2:
                evaluate(loader)
    assert (stream.samples, stream.steps) == (64, 8)
    assert len(stream.boundary_seconds) == 1
    assert stream.epoch_batches == 4


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_batch_that_is_taken_ahead_counts_with_the_step_that_trains_on_it(
    stream, is_ahead, accumulated
):
    """In short epochs, also around their ends."""
    loader = DataLoader(EIGHT, batch_size=8)
    for epoch in range(3):
        for n, _ in enumerate(one_ahead(loader) if is_ahead else loader, start=1):
            passed(stream)
            if n % accumulated == 0:
                stream.stepped()
                assert stream.samples == 8 * accumulated * stream.steps
                if epoch:
                    assert stream.samples_per_step == 8 * accumulated
    assert stream.accumulation_steps == accumulated


def test_batches_that_are_taken_together_count_together(stream):
    """Two for each step, with one backward pass, as a support set and a query set.

    In the first step of an epoch that looks like a batch taken ahead.
    """
    for _ in range(3):
        batches = iter(DataLoader(EIGHT, batch_size=8))
        for n in range(4):
            next(batches), next(batches)
            trained_on_a_batch(stream)
            if n:
                assert stream.samples == 16 * stream.steps
    assert stream.samples_per_step == 16
    assert stream.accumulation_steps == 2


@pytest.mark.parametrize("taken", [2, 3, 4])
def test_batches_that_are_kept_for_several_steps_count_once(stream, taken):
    for _ in range(4):
        batches = iter(DataLoader(EIGHT, batch_size=8))
        for _ in range(taken):
            next(batches)
        for _ in range(taken):
            trained_on_a_batch(stream)
            assert stream.samples >= 8 * stream.steps
    assert stream.samples == 8 * stream.steps


@pytest.mark.parametrize("is_ahead", [False, True])
def test_what_an_epoch_leaves_to_the_next_step_counts_there(stream, is_ahead):
    """Ten batches, a step after each four: two are left, and trained on."""
    loader = DataLoader([torch.ones(4) for _ in range(80)], batch_size=8)
    for _ in range(3):
        for n, _ in enumerate(one_ahead(loader) if is_ahead else loader, start=1):
            passed(stream)
            if n % 4 == 0:
                stream.stepped()
    assert (stream.steps, stream.samples) == (6, 8 * 28)


@pytest.mark.parametrize("in_closure", [False, True])
def test_a_step_on_whole_epochs_counts_their_batches(stream, in_closure):
    """An optimizer that calls its closure again reads the loader again."""
    loader = DataLoader(NUMBERS, batch_size=8)
    for _ in range(2):
        for _ in range(1 + in_closure):
            list(loader)
            stream.calls.passed(in_closure)
        stream.stepped()
    assert stream.samples == 64 * (1 + in_closure)
    assert stream.accumulation_steps == 4 * (1 + in_closure)


def one_ahead(loader):
    """Yield each batch once the next one is there."""
    batches = iter(loader)
    last = next(batches)
    for batch in batches:
        yield last
        last = batch
    yield last


def passed(stream):
    """One backward pass."""
    stream.calls.passed(in_closure=False)


def test_a_loop_that_switches_gradients_on_for_each_batch_is_training(stream):
    loader = DataLoader(NUMBERS, batch_size=8)
    try:
        for _ in range(2):
            for _ in loader:
                torch.set_grad_enabled(True)
                trained_on_a_batch(stream)
            torch.set_grad_enabled(False)
    finally:
        torch.set_grad_enabled(True)
    assert stream.is_fed
    assert stream.samples == 56  # the first batch of the second epoch was read before


class Buckets(Sampler[list[int]]):
    """Batches of 12 and 4 in turns, and no attribute that says so."""

    def __init__(self):
        pass

    def __iter__(self):
        yield from (list(range(12)), list(range(12, 16)), list(range(16, 28)), [28, 29, 30, 31])

    def __len__(self):
        return 4


def detection(samples):
    return tuple(zip(*((torch.ones(3, 5, 5), {"boxes": one}) for one in samples), strict=True))


def time_first(samples):
    return pad_sequence([torch.ones(len(one) + n) for n, one in enumerate(samples)])


@pytest.mark.parametrize("collate", [detection, time_first, list, len])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("kwargs", "per_step"),
    [
        ({"batch_size": 10}, 8.0),
        ({"batch_size": 10, "drop_last": True}, 10.0),
        ({"batch_sampler": Buckets()}, 8.0),
        ({"batch_sampler": BatchSampler(SequentialSampler(NUMBERS), 10, drop_last=False)}, 8.0),
        ({"batch_sampler": [[0, 1], [2, 3, 4, 5]]}, 3.0),
    ],
)
def test_the_loader_tells_the_samples_however_it_collates_them(
    stream, kwargs, per_step, workers, collate
):
    loader = DataLoader(NUMBERS, collate_fn=collate, num_workers=workers, **kwargs)
    trained(stream, epochs=2)(loader)
    assert stream.samples_per_step == per_step
    assert stream.samples == per_step * stream.steps
    assert stream.epoch_samples == stream.samples / 2


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_sampler_may_have_no_length(stream, drop_last):
    loader = DataLoader(NUMBERS, batch_size=8, sampler=Endless(), drop_last=drop_last)
    for _, _ in zip(range(6), loader, strict=False):
        trained_on_a_batch(stream)
    assert (stream.samples_per_step, stream.epoch_samples) == (8.0, None)


def test_a_loop_that_begins_an_epoch_for_each_step_waits_for_all_its_batches(stream):
    """The time between epochs is a share of each sample of the epoch, which is one batch here."""
    loader = DataLoader(NUMBERS, batch_size=8)
    for _ in range(5):
        next(iter(loader))
        trained_on_a_batch(stream)
    assert (stream.epoch_batches, stream.epoch_samples) == (1, 8)
    assert len(stream.boundary_seconds) == 4


def test_what_a_thread_reads_ahead_is_no_wait(stream):
    class Slow(list[Any]):
        def __getitem__(self, index):
            time.sleep(SECONDS / 8)
            return super().__getitem__(index)

    def train(batches):
        waited = stream.wait_seconds
        for _ in batches:
            trained_on_a_batch(stream)
        return stream.wait_seconds - waited

    loader = DataLoader(Slow(NUMBERS), batch_size=8)
    train(iter(loader))
    assert train(iter(loader)) >= 2 * SECONDS
    assert not stream.is_read_apart
    ahead = queue.Queue(maxsize=2)
    reader = threading.Thread(target=lambda: [*map(ahead.put, loader), ahead.put(None)])
    reader.start()
    assert train(iter(ahead.get, None)) == 0
    reader.join()
    assert (stream.batches, stream.is_read_apart) == (12, True)


@pytest.mark.parametrize("library", ["gymnasium", ""])
def test_what_an_agent_does_between_the_steps_is_timed(stream, monkeypatch, library):
    """An agent may evaluate its model to play; other evaluations are left out."""
    if library:
        monkeypatch.setitem(sys.modules, library, ModuleType(library))
    for _ in range(3):
        start = time.perf_counter()
        time.sleep(SECONDS)
        stream.calls.evaluated(start)
        stream.calls.called([torch.ones(8, 4)])
        trained_on_a_batch(stream)
    assert (stream.calls.aside_seconds < SECONDS) == bool(library)


def test_the_first_epoch_counts_the_batch_that_came_before_its_loader_was_known(stream):
    trained(stream)(DataLoader(NUMBERS, batch_size=8))
    assert stream.epoch_batches == 4
    assert stream.epoch_samples == 32


def test_an_epoch_that_is_broken_off_leaves_no_sizes_to_the_next(stream):
    loader = DataLoader(NUMBERS, batch_sampler=Buckets(), num_workers=1, persistent_workers=True)
    for _ in range(2):
        for _ in loader:
            trained_on_a_batch(stream)
            break
    assert stream.samples == 24


class Ready(IterableDataset[Any]):
    def __iter__(self):
        yield from (torch.ones(7, 3) for _ in range(4))


def test_tensors_tell_the_samples_where_a_dataset_gives_whole_batches(stream):
    trained(stream)(DataLoader(Ready(), batch_size=None))
    assert (stream.samples, stream.samples_per_step) == (28, 7)


def test_a_sampler_of_lists_without_collation_tells_the_samples(stream):
    class Table:
        def __getitem__(self, rows):
            return torch.ones(3, len(rows))

        def __len__(self):
            return 32

    sampler = BatchSampler(SequentialSampler(NUMBERS), 8, drop_last=False)
    trained(stream)(DataLoader(Table(), batch_size=None, sampler=sampler))
    assert stream.samples == 32
