"""Warm-up and blocks, on a clock that moves only when a test says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.job import MeasurePlan
from autotune.training.timing import steady_step_seconds
from clockwork import Bench, Clock, Loader

PLAN = MeasurePlan(
    warmup_steps=3, block_seconds=10.0, looks=(6, 9, 12), precision=0.02, max_seconds=1e9
)


MakeBench = Callable[..., Bench]


@pytest.fixture
def endless() -> Callable[[list[float]], Bench]:
    """Steps of given seconds on an epoch that does not end."""
    return lambda seconds: Bench(Loader(Clock(), epoch=10**9), seconds)


def test_a_calm_warm_up_takes_as_many_steps_as_planned(endless: MakeBench) -> None:
    assert endless([1.0]).timer().warm_up(PLAN, queued_batches=0) == (1.0, 1.0, 1.0)


def test_the_warm_up_uses_up_what_the_loader_holds_ready(endless: MakeBench) -> None:
    assert len(endless([1.0]).timer().warm_up(PLAN, queued_batches=4)) == 7


def test_a_stall_makes_the_count_of_calm_steps_begin_again(endless: MakeBench) -> None:
    found = endless([1.0, 1.0, 30.0, 1.0]).timer().warm_up(PLAN, queued_batches=0)
    assert found == (1.0, 1.0, 30.0, 1.0, 1.0, 1.0)


def test_a_step_that_is_only_slower_is_no_stall(endless: MakeBench) -> None:
    found = endless([1.0, 1.0, 4.0, 1.0]).timer().warm_up(PLAN, queued_batches=0)
    assert found == (1.0, 1.0, 4.0)


def test_a_warm_up_that_stalls_for_ever_ends_when_its_time_is_up(endless: MakeBench) -> None:
    plan = MeasurePlan(warmup_steps=3, max_seconds=100.0)
    stalling = [1.0] + [30.0] * 50
    found = endless(stalling).timer().warm_up(plan, queued_batches=0)
    assert found == (1.0, 30.0, 30.0, 30.0, 30.0)


def test_the_first_step_may_compile_for_longer_than_the_time_of_the_warm_up(
    endless: MakeBench,
) -> None:
    plan = MeasurePlan(warmup_steps=3, max_seconds=100.0)
    found = endless([900.0, 1.0]).timer().warm_up(plan, queued_batches=0)
    assert len(found) >= 3


def test_every_step_of_the_warm_up_is_waited_for(endless: MakeBench) -> None:
    bench = endless([1.0])
    bench.timer().warm_up(PLAN, queued_batches=0)
    assert set(bench.synchronised) == {0, 1, 2, 3}


def test_blocks_hold_nothing_of_the_warm_up(endless: MakeBench) -> None:
    timer = endless([100.0, 1.0]).timer()
    timer.warm_up(PLAN, queued_batches=0)
    blocks = timer.time_blocks(PLAN, step_seconds=1.0, batch_size=8)
    assert {block.seconds for block in blocks} == {10.0}


def test_a_block_has_as_many_whole_steps_as_fill_its_seconds(endless: MakeBench) -> None:
    bench = endless([3.0])
    blocks = bench.timer().time_blocks(PLAN, step_seconds=3.0, batch_size=8)
    assert {(block.seconds, block.samples) for block in blocks} == {(12.0, 32)}  # 4 steps


def test_a_step_longer_than_a_block_is_a_block_of_its_own(endless: MakeBench) -> None:
    blocks = endless([25.0]).timer().time_blocks(PLAN, step_seconds=25.0, batch_size=8)
    assert {(block.seconds, block.samples) for block in blocks} == {(25.0, 8)}


def test_the_device_is_waited_for_at_the_edges_of_blocks_only(endless: MakeBench) -> None:
    bench = endless([5.0])
    bench.timer().time_blocks(PLAN, step_seconds=5.0, batch_size=8)  # 6 blocks of 2 steps
    assert sorted(set(bench.synchronised)) == [0, 2, 4, 6, 8, 10, 12]


def test_timing_ends_at_the_first_look_where_the_interval_is_narrow(endless: MakeBench) -> None:
    assert len(endless([10.0]).timer().time_blocks(PLAN, 10.0, batch_size=8)) == 6


def test_timing_goes_on_while_the_interval_is_wide(endless: MakeBench) -> None:
    # The range of six blocks is wide; of nine, an outlier on one side is dropped.
    seconds = [10.0, 10.0, 10.0, 10.0, 10.0, 20.0, 10.0]
    assert len(endless(seconds).timer().time_blocks(PLAN, 10.0, batch_size=8)) == 9


def test_timing_ends_at_the_last_look_however_wide_the_interval_is(endless: MakeBench) -> None:
    seconds = [10.0, 20.0] * 6
    assert len(endless(seconds).timer().time_blocks(PLAN, 10.0, batch_size=8)) == 12


def test_timing_ends_at_the_first_look_after_its_time_is_up(endless: MakeBench) -> None:
    plan = MeasurePlan(block_seconds=10.0, looks=(6, 9, 12), max_seconds=80.0)
    seconds = [10.0, 12.0] * 6  # 66 s at the first look, 97 s or more at the second
    assert len(endless(seconds).timer().time_blocks(plan, 10.0, batch_size=8)) == 9


def test_waiting_for_data_is_noted_and_part_of_the_block() -> None:
    bench = Bench(Loader(Clock(), epoch=10**9, batch_seconds=2.0), [3.0])
    blocks = bench.timer().time_blocks(PLAN, step_seconds=5.0, batch_size=8)  # 2 steps
    assert {(block.seconds, block.wait_seconds) for block in blocks} == {(10.0, 4.0)}


def test_a_steady_step_is_the_median_of_the_later_half_of_the_warm_up() -> None:
    assert steady_step_seconds((90.0, 50.0, 3.0, 1.0, 2.0)) == 2


def test_a_steady_step_is_never_nothing_because_steps_are_counted_by_it() -> None:
    assert steady_step_seconds((0.0, 0.0)) > 0
