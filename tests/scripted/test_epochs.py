"""Batches across the ends of epochs, on a clock that moves only when a test says so."""

import pytest

from autotune.configuration.job import MeasurePlan
from autotune.training.batches import Batches, EmptyEpochError, endless
from clockwork import Bench, Clock, Loader
from covering import covers

# Six blocks of two steps of 5 s: twelve batches, with boundaries after the fifth and the tenth.
PLAN = MeasurePlan(block_seconds=10.0, looks=(6,), max_seconds=1e9)


@pytest.mark.parametrize(
    ("seconds", "boundary", "blocks"),
    [
        ({"start_seconds": 40.0}, 40.0, [10.0] * 6),
        # Until the first batch is there. What the boundary took over is missing in its block, and
        # nowhere else.
        ({"start_seconds": 40.0, "batch_seconds": 1.0}, 41.0, [10.0, 10.0, 9.0, 10.0, 10.0, 9.0]),
        # Without persistent_workers the DataLoader stops its workers before StopIteration.
        ({"end_seconds": 7.0}, 7.0, [10.0] * 6),
    ],
    ids=["starting", "and its first batch", "closing"],
)
def test_an_epoch_boundary_is_noted_and_no_part_of_a_block(seconds, boundary, blocks):
    step = 5.0 - seconds.get("batch_seconds", 0.0)
    timer = Bench(Loader(Clock(), epoch=5, **seconds), [step]).timer()
    found = timer.time_blocks(PLAN, step_seconds=5.0, batch_size=8)
    assert timer.batches.boundary_seconds == [boundary, boundary]
    assert [block.seconds for block in found] == blocks
    assert timer.batches.wait_seconds == 10 * seconds.get("batch_seconds", 0.0)
    assert timer.batches.epoch_batches == 5


def test_the_samples_of_an_epoch_are_counted_anew_in_each():
    loader = Loader(Clock(), epoch=3)
    batches = Batches(loader, loader.clock, lambda: None)
    taken = [next(batches) for _ in range(8)]
    assert taken == [0, 1, 2, 0, 1, 2, 0, 1]
    assert batches.epoch_batches == 3


def test_the_start_of_the_first_epoch_is_no_boundary():
    loader = Loader(Clock(), epoch=5, start_seconds=40.0)
    batches = Batches(loader, loader.clock, lambda: None)
    assert [next(batches) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert batches.boundary_seconds == []
    assert batches.epoch_batches is None


def test_the_device_is_waited_for_before_a_boundary_is_timed():
    loader = Loader(Clock(), epoch=1, start_seconds=2.0)
    batches = Batches(loader, loader.clock, lambda: loader.clock.wait(50.0))
    next(batches)
    next(batches)
    assert batches.boundary_seconds == [2.0]


def test_a_loader_without_a_batch_is_an_error_and_no_endless_loop():
    loader = Loader(Clock(), epoch=0)
    with pytest.raises(EmptyEpochError):
        next(Batches(loader, loader.clock, lambda: None))
    assert loader.started == 2


@covers("T11")
def test_a_generator_that_can_be_gone_through_once_is_an_error_at_its_end():
    batches = Batches(iter([1, 2]), Clock(), lambda: None)
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(EmptyEpochError):
        next(batches)


def test_endless_batches_end_where_an_epoch_gives_none():
    epochs = iter([["a", "b"], ["c"], []])

    class Once:
        def __iter__(self):
            return iter(next(epochs))

    batches = endless(Once())
    assert [next(batches) for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(EmptyEpochError):
        next(batches)
