"""Warm-up and blocks, on a clock that moves only when a test says so."""

from dataclasses import replace

import pytest

from autotune.comparison.rounds import PLAN as ROUND
from autotune.configuration.job import MeasurePlan
from autotune.training.batches import Batches, EmptyEpochError
from autotune.values.measurement import QUIET, UNEVEN, Noise
from clockwork import Bench, Clock, Loader
from covering import covers

PLAN = MeasurePlan(
    warmup_steps=3, block_seconds=10.0, block_counts=(6, 9, 12), precision=0.02, max_seconds=1e9
)


@pytest.fixture
def without_end():
    """Steps of given seconds on an epoch that does not end."""
    return lambda seconds: Bench(Loader(Clock(), epoch=10**9), seconds)


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        ([1.0], (1.0, 1.0, 1.0)),
        ([1.0, 1.0, 30.0, 1.0], (1.0, 1.0, 30.0, 1.0, 1.0, 1.0)),
        ([1.0, 1.0, 4.0, 1.0], (1.0, 1.0, 4.0)),
    ],
    ids=["calm", "a stall begins the count again", "a step that is only slower is none"],
)
def test_a_warm_up_lasts_until_enough_calm_steps_in_a_row(seconds, taken, without_end):
    assert without_end(seconds).timer().warm_up(PLAN).step_seconds == taken


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        ([1.0] + [30.0] * 50, (1.0, 30.0, 30.0, 30.0, 30.0)),
        # The first one may compile for longer than that, and is none of the calm ones.
        ([900.0] + [1.0] * 9, (900.0, 1.0, 1.0, 1.0)),
    ],
)
def test_a_warm_up_ends_when_its_time_after_the_first_step_is_up(seconds, taken, without_end):
    timer = without_end(seconds).timer()
    found = timer.warm_up(MeasurePlan(warmup_steps=3, max_seconds=100.0))
    assert found.step_seconds == taken
    assert ("short_warm_up" in timer.flags) is (found.calm_seconds > 1.0)


def test_every_step_of_the_warm_up_is_waited_for(without_end):
    bench = without_end([1.0])
    bench.timer().warm_up(PLAN)
    assert set(bench.synchronised) == {0, 1, 2, 3}


def test_waiting_for_data_is_no_stall_for_it_leaves_nothing_ready():
    loader = Loader(Clock(), epoch=10**9, batch_seconds=50.0)
    found = Bench(loader, [1.0]).timer().warm_up(PLAN)
    assert found.step_seconds == (51.0, 51.0, 51.0)


def test_a_calm_step_is_the_mean_since_the_last_stall_for_batches_come_in_bursts(without_end):
    timer = without_end([1.0, 30.0, 2.0, 1.0, 3.0]).timer()
    assert timer.warm_up(PLAN).calm_seconds == 2.0
    assert timer.flags == set()


@covers("T19")
def test_blocks_hold_nothing_of_the_warm_up(without_end):
    timer = without_end([100.0, 1.0]).timer()
    timer.warm_up(PLAN)
    blocks = timer.time_blocks(PLAN, step_seconds=1.0, batch_size=8)
    assert {block.seconds for block in blocks} == {10.0}


@pytest.mark.parametrize(
    ("step", "block"), [(3.0, (12.0, 32)), (25.0, (25.0, 8))], ids=["four", "one, longer than it"]
)
def test_a_block_has_as_many_whole_steps_as_fill_its_seconds(step, block, without_end):
    blocks = without_end([step]).timer().time_blocks(PLAN, step_seconds=step, batch_size=8)
    assert {(block.seconds, block.samples) for block in blocks} == {block}


def test_the_device_is_waited_for_at_the_edges_of_blocks_only(without_end):
    bench = without_end([5.0])
    bench.timer().time_blocks(PLAN, step_seconds=5.0, batch_size=8)  # 6 blocks of 2 steps
    assert sorted(set(bench.synchronised)) == [0, 2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize(
    ("seconds", "max_seconds", "blocks"),
    [
        ([10.0], 1e9, 6),
        ([10.0, 10.0, 10.0, 10.0, 10.0, 10.6, 10.0], 1e9, 9),  # 2.5 % either way at first
        ([10.0, 20.0] * 6, 1e9, 12),
        ([10.0, 12.0] * 6, 80.0, 9),  # 66 s at the first look, 97 s or more at the second
    ],
    ids=["narrow", "wide at the first look", "wide at the last", "its time is up"],
)
def test_timing_goes_on_from_look_to_look_while_the_interval_is_wide(
    seconds, max_seconds, blocks, without_end
):
    plan = replace(PLAN, max_seconds=max_seconds)
    assert len(without_end(seconds).timer().time_blocks(plan, 10.0, batch_size=8)) == blocks


def test_timing_takes_longer_where_few_slow_steps_take_much_of_the_time(without_end):
    plan = replace(PLAN, max_seconds=65.0, block_counts=(6, 9, 12, 17, 25))
    even = without_end([10.0, 12.0] * 20).timer().time_blocks(plan, 10.0, batch_size=8)
    uneven = (
        without_end([10.0] * 5 + [60.0] + [10.0] * 6).timer().time_blocks(plan, 10.0, batch_size=8)
    )
    assert len(even) == 6
    assert len(uneven) > 12


def test_the_asked_samples_are_timed_before_a_trial_is_said_to_be_slower(without_end):
    plan = replace(PLAN, incumbent_seconds_per_sample=1.0, least_samples=80)
    timer = without_end([40.0] * 4 + [2.0] * 100).timer()
    timer.time_blocks(plan, 10.0, batch_size=8)
    assert timer.flags == {UNEVEN}


def test_a_timing_begins_and_has_blocks_as_asked_in_samples(without_end):
    plan = replace(PLAN, block_counts=(4,), warmup_samples=80, block_samples=32)
    bench = without_end([1.0])
    timer = bench.timer()
    warm_up = timer.warm_up(plan, batch_size=8)
    blocks = timer.time_blocks(plan, warm_up.calm_seconds, batch_size=8)
    assert (warm_up.samples, len(warm_up.step_seconds)) == (80, 10)
    assert [block.samples for block in blocks] == [32] * 4
    assert blocks[0].seconds == 4.0


def test_as_many_samples_take_four_times_the_planned_seconds_at_most(without_end):
    plan = replace(PLAN, block_counts=(6,), max_seconds=30.0, block_samples=16)
    assert len(without_end([10.0]).timer().time_blocks(plan, 10.0, batch_size=8)) == 6
    assert len(without_end([15.0]).timer().time_blocks(plan, 10.0, batch_size=8)) == 5
    more = replace(plan, warmup_samples=800)
    bench = without_end([10.0])
    assert bench.timer().warm_up(more, batch_size=8).samples == (PLAN.warmup_steps + 3) * 8


def test_waiting_for_data_is_noted_and_part_of_the_block():
    bench = Bench(Loader(Clock(), epoch=10**9, batch_seconds=2.0), [3.0])
    blocks = bench.timer().time_blocks(PLAN, step_seconds=5.0, batch_size=8)  # 2 steps
    assert {(block.seconds, block.wait_seconds) for block in blocks} == {(10.0, 4.0)}


class Queue(Loader):
    """A loader whose workers hold a number of batches ready, told batch by batch."""

    num_workers = 1
    prefetch_factor = 4


class Stocked(Batches):
    """Batches with a stock that a test wrote down; the last entry goes on for ever."""

    def __init__(self, loader, stock):
        super().__init__(loader, loader.clock, lambda: None)
        self.stock = stock
        self.taken = 0

    def ready(self):
        return self.stock[min(self.taken, len(self.stock) - 1)]

    def __next__(self):
        self.taken += 1
        return super().__next__()


def stocked(stock, batch_seconds=0.0):
    """A timer over steps of a second, with so many batches ready after each."""
    loader = Queue(Clock(), epoch=10**9, batch_seconds=batch_seconds)
    timer = Bench(loader, [1.0]).timer()
    return replace(timer, batches=Stocked(loader, stock))


@pytest.mark.parametrize(
    ("stock", "steps"),
    [([4, 4, 4, 4, 3, 2, 1, 0], 6), ([4], 3 + 5), ([None], 3 + 5)],
    ids=["used up", "it stays, so it is gone through", "nobody can count it"],
)
def test_the_warm_up_uses_up_what_lay_ready(stock, steps):
    assert len(stocked(stock).warm_up(PLAN).step_seconds) == steps


ONE_BLOCK = MeasurePlan(block_seconds=10.0, block_counts=(1,))


@pytest.mark.parametrize(
    ("stock", "batch_seconds", "counted", "credited"),
    [
        ([8, *[8] * 9, 3], 0.0, 1.0, 0.5),  # ten taken, five of them replaced
        ([4, *[4] * 9, 3], 0.0, 1.0, 1.0),
        ([1, *[0] * 4, 0], 1.0, 0.5, 0.4),  # five taken in ten seconds, four of them loaded
        ([0, *[4] * 9, 8], 0.25, 0.8, 0.8),
        ([8, *[8] * 9, None], 0.0, 1.0, 1.0),
    ],
    ids=[
        "batches from the stock are not credited",
        "one that trembles changes nothing where nobody waits",
        "every batch of it counts if training waits",
        "a queue that fills again is no throughput",
        "near the end of an epoch it does not count",
    ],
)
def test_the_loader_is_credited_with_what_it_loaded_in_the_block(
    stock, batch_seconds, counted, credited
):
    timer = stocked(stock, batch_seconds)
    (block,) = timer.time_blocks(ONE_BLOCK, 1.0 + batch_seconds, batch_size=1)
    found = block.samples / block.seconds, 1 / block.seconds_per_sample
    assert found == pytest.approx((counted, credited))


def test_a_first_block_that_is_too_short_is_replaced_by_a_longer_one():
    loader = Loader(Clock(), epoch=10**9)
    timer = Bench(loader, [1.0]).timer()
    blocks = timer.time_blocks(PLAN, step_seconds=5.0, batch_size=8)  # two steps would fill it
    assert {block.seconds for block in blocks} == {10.0}


def test_a_block_in_which_something_was_compiled_is_void(without_end):
    bench = without_end([10.0, 10.0, 90.0, 10.0])
    bench.compiling = {2}
    timer = bench.timer()
    blocks = timer.time_blocks(PLAN, 10.0, batch_size=8)
    assert [block.seconds for block in blocks] == [10.0] * 6
    assert timer.flags == {"recompiled"}


@covers("T19")
def test_compiling_without_end_is_flagged(without_end):
    bench = without_end([10.0])
    bench.compiling = set(range(1000))
    timer = bench.timer()
    assert len(timer.time_blocks(PLAN, 10.0, batch_size=8)) == 6
    assert timer.flags == {"recompiled", "unsteady"}


BUSY = Noise(foreign=0.5)


def is_disturbed(blocks):
    return [block.is_disturbed for block in blocks]


def test_a_disturbed_block_is_marked_and_another_one_timed_in_its_place(without_end):
    bench = without_end([10.0, 40.0, 10.0])
    bench.noises = [QUIET, BUSY]
    blocks = bench.timer().time_blocks(PLAN, 10.0, batch_size=8)
    assert is_disturbed(blocks) == [False, True, *[False] * 5]


def test_after_some_patience_disturbed_blocks_count_as_well(without_end):
    bench = without_end([10.0])
    bench.noises = [BUSY] * 100
    plan = replace(PLAN, most_disturbed=4)
    assert len(bench.timer().time_blocks(plan, 10.0, batch_size=8)) == 4 + 6


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        ([20.0], (3, {"stopped_early"})),
        ([20.0, 10.0, 20.0], (6, {"stopped_early"})),
        ([11.0, 12.0] * 6, (6, {"stopped_early"})),  # would go on, its interval being wide
        ([9.5, 12.0] * 6, (12, set())),
    ],
    ids=["hopeless", "one block as fast keeps it going", "clearly slower", "it may be the best"],
)
def test_a_trial_slower_than_the_best_one_is_stopped_early(seconds, found, without_end):
    plan = replace(PLAN, incumbent_seconds_per_sample=10.0 / 8)
    timer = without_end(seconds).timer()
    assert (len(timer.time_blocks(plan, 10.0, batch_size=8)), timer.flags) == found


def test_nobody_is_given_up_or_beaten_for_blocks_that_others_disturbed(without_end):
    plan = replace(PLAN, incumbent_seconds_per_sample=10.0 / 8)
    bench = without_end([20.0])
    bench.noises = [BUSY, QUIET]
    assert len(bench.timer().time_blocks(plan, 10.0, batch_size=8)) == 7
    bench = without_end([12.0])
    bench.noises = [BUSY] * 100
    timer = bench.timer()
    timer.time_blocks(plan, 10.0, batch_size=8)
    assert timer.flags == set()


@covers("R13")
@pytest.mark.parametrize("jump", [0.0, -30.0])
def test_a_block_in_which_the_clock_jumped_back_is_void(jump, without_end):
    timer = without_end([10.0, jump, 10.0]).timer()
    blocks = timer.time_blocks(PLAN, 10.0, batch_size=8)
    assert {block.seconds for block in blocks} == {10.0}
    assert timer.flags == {"clock"}


def test_a_clock_that_jumps_ahead_is_one_slow_block(without_end):
    blocks = without_end([10.0, 9000.0, 10.0]).timer().time_blocks(PLAN, 10.0, batch_size=8)
    assert sorted(block.seconds for block in blocks)[-2:] == [10.0, 9000.0]


def test_a_warm_up_survives_a_clock_that_jumps_back(without_end):
    assert len(without_end([1.0, -30.0, 1.0]).timer().warm_up(PLAN).step_seconds) < 20


@pytest.mark.parametrize(("step_seconds", "blocks"), [(0.05, 6), (0.25, 6), (1.0, 3)])
def test_a_timing_of_a_round_takes_fewer_blocks_where_steps_are_slow(
    without_end, step_seconds, blocks
):
    seconds = [step_seconds * (1 + 0.001 * number) for number in range(50)]
    timed = without_end(seconds).timer().time_blocks(ROUND, step_seconds, 8)
    assert len(timed) == blocks


class Workers(Loader):
    """A loader with four workers, whose batches come in bursts."""

    num_workers = 4
    prefetch_factor = 4


@pytest.mark.parametrize(
    ("loader", "step_seconds", "is_disturbed", "steps"),
    [
        *((Loader, 2.0, False, 6), (Loader, 2.0, True, 6), (Workers, 2.0, False, 12)),
        *((Workers, 2.0, True, 24), (Workers, 0.02, False, 48), (Workers, 0.02, True, 112)),
    ],
)
def test_slow_steps_are_timed_no_longer_than_tells(loader, step_seconds, is_disturbed, steps):
    """Four workers deliver in bursts, so that a block has four steps or more."""
    bench = Bench(loader(Clock(), epoch=10**9), [step_seconds])
    bench.noises = [BUSY if is_disturbed else QUIET] * 100
    plan = MeasurePlan(block_seconds=0.1)
    blocks = bench.timer().time_blocks(plan, step_seconds, batch_size=1)
    assert sum(block.samples for block in blocks) == steps


def test_workers_and_accumulated_batches_share_a_multiple():
    bench = Bench(Workers(Clock(), epoch=10**9), [1.0])
    timer = bench.timer(per_step=2)
    blocks = timer.time_blocks(replace(PLAN, block_seconds=1.0), 1.0, batch_size=1)
    assert {block.samples for block in blocks} == {4}, "two steps of two batches, for four workers"


# Six blocks of two steps of 5 s: twelve batches, with boundaries after the fifth and the tenth.
OF_EPOCHS = MeasurePlan(block_seconds=10.0, block_counts=(6,), max_seconds=1e9)


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
    found = timer.time_blocks(OF_EPOCHS, step_seconds=5.0, batch_size=8)
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


@covers("T11")
def test_a_generator_that_can_be_gone_through_once_is_an_error_at_its_end():
    batches = Batches(iter([1, 2]), Clock(), lambda: None)
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(EmptyEpochError):
        next(batches)
