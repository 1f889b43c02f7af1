"""Rounds: who goes when, and what a round says when somebody fails in it."""

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest

from autotune.comparison import rounds as paired
from autotune.configuration.job import Job, Measure
from autotune.configuration.training_config import TrainingConfig
from autotune.values.measurement import Block
from autotune.values.outcome import Crashed, Lost, Measured
from factories import measurement

OWN = paired.Participant("baseline", TrainingConfig.of({"batch_size": 8}))
FAST = paired.Participant("fast", TrainingConfig.of({"batch_size": 64}))
LARGE = paired.Participant("large", TrainingConfig.of({"batch_size": 128}))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_everyone_stands_in_each_place_once_in_every_block_of_rounds(size):
    rounds = list(islice(paired.orders(size, seed=7), 5 * size))
    for start in range(0, len(rounds), size):
        block = rounds[start : start + size]
        for place in range(size):
            assert sorted(order[place] for order in block) == list(range(size))


def test_two_take_turns_and_every_pair_of_rounds_is_a_turn_and_its_opposite():
    rounds = list(islice(paired.orders(2, seed=1), 20))
    pairs = list(zip(rounds[::2], rounds[1::2], strict=True))
    assert all(first == second[::-1] for first, second in pairs)
    assert len(set(pairs)) == 2, "which of the two goes first is drawn anew"


def test_blocks_are_shuffled_so_that_neighbours_change():
    rounds = islice(paired.orders(4, seed=3), 40)
    neighbours = Counter(pair for order in rounds for pair in pairwise(order))
    assert len(neighbours) == 12, "everyone follows everyone else at some time"


def test_the_same_seed_gives_the_same_schedule_and_another_another():
    assert list(islice(paired.orders(3, 5), 9)) == list(islice(paired.orders(3, 5), 9))
    assert list(islice(paired.orders(3, 5), 9)) != list(islice(paired.orders(3, 6), 9))


def course(timed, asked):
    """Rounds in which each batch size has one result; they note the folders asked for."""

    def time(config, folder, plan, host, seed):
        asked.append(folder.name)
        return timed[int(config["batch_size"] or 0)]

    return paired.Course(time, lambda _, run: run.samples_per_second, OWN, Path("confirm"))


def test_a_round_asks_for_everyone_in_the_order_that_it_is_given():
    asked = []
    timed = {8: measurement(100), 64: measurement(150)}
    results = paired.play_round(course(timed, asked), [FAST, OWN], 4)
    assert asked == ["4-fast", "4-baseline"]
    assert results == {"fast": timed[64], "baseline": timed[8]}


def test_one_candidates_failure_does_not_end_the_round_of_the_others():
    asked = []
    timed = {8: measurement(100), 64: Crashed("killed by SIGSEGV"), 128: measurement(150)}
    paired.play_round(course(timed, asked), [FAST, OWN, LARGE], 0)
    assert asked == ["0-fast", "0-baseline", "0-large"]


@pytest.mark.parametrize(
    ("order", "asked_for"),
    [([OWN, FAST, LARGE], ["0-baseline"]), ([FAST, LARGE, OWN], ["0-fast", "0-large"])],
)
def test_a_round_ends_where_nothing_is_left_to_compare(order, asked_for):
    asked = []
    paired.play_round(course(dict.fromkeys((8, 64, 128), Crashed("killed")), asked), order, 0)
    assert asked == asked_for


def hosts(*participants, host_seconds=2.5):
    """Whom the processes of four rounds are forked from."""
    found = []

    def time(config, folder, plan, host, seed):
        found.append(host)
        return measurement(100)

    stage = paired.Course(
        time, lambda _, run: run.samples_per_second, OWN, Path("confirm"), host_seconds=host_seconds
    )
    for number in range(4):
        paired.play_round(stage, participants, number)
    return found


def test_all_of_a_round_are_forked_from_one_interpreter_and_each_round_from_another():
    found = hosts(OWN, FAST, LARGE)
    assert [found.index(host) for host in found] == [0] * 3 + [3] * 3 + [6] * 3 + [9] * 3


def test_rounds_share_the_searchs_host_where_a_dataset_is_dear():
    assert hosts(OWN, FAST, host_seconds=12.5) == ["search"] * 8
    assert len(set(hosts(OWN, FAST, host_seconds=5.0))) == 4
    # Three processes take longer than two.
    assert set(hosts(OWN, FAST, host_seconds=8.0)) == {"search"}
    assert len(set(hosts(OWN, FAST, LARGE, host_seconds=8.0))) == 4


def test_nobody_is_forked_where_one_of_them_cannot_be():
    waiting = paired.Participant("waits", OWN.config.replace(**{"env.OMP_WAIT_POLICY": "ACTIVE"}))
    assert hosts(OWN, waiting) == [None] * 8
    assert hosts(FAST, OWN, waiting) == [None] * 12
    assert hosts(OWN, waiting, host_seconds=60.0) == [None] * 8


class Recording:
    """A runner with prepared outcomes that keeps the jobs."""

    def __init__(self, *outcomes):
        self.outcomes, self.jobs = list(outcomes), list[Job]()

    def run(self, job, folder):
        self.jobs.append(job)
        return self.outcomes.pop(0)


def test_a_timing_is_repeated_once_where_it_was_lost():
    runner = Recording(Lost("disk full"), Measured(measurement(100)))
    job = Job(Measure(paired.PLAN), "cpu", "model.py", FAST.config.as_dict())
    assert paired.time_in_round(runner, job, Path("folder")) == measurement(100)
    assert runner.jobs == [job, job]


def test_a_run_that_is_lost_twice_is_a_failure():
    runner = Recording(Lost("disk full"), Lost("disk still full"))
    job = Job(Measure(paired.PLAN), "cpu", "model.py", FAST.config.as_dict())
    assert paired.time_in_round(runner, job, Path("folder")) == Lost("disk still full")


def test_the_ratio_of_a_comparison_is_that_of_the_seconds_of_all_rounds():
    comparison = paired.PairedComparison()
    for costs in ((2.0, 1.0), (1.0, 2.0), (3.0, 1.0)):
        comparison = comparison.after(measurement(100), measurement(100), costs)
    assert comparison.ratio == pytest.approx(6 / 4)
    assert comparison.ratios == pytest.approx((2.0, 0.5, 3.0))
    low, high = comparison.interval
    assert low < 1
    assert high > 1.5
    assert not comparison.is_faster


def timed_by(block_samples, blocks, warmup):
    block = Block(1.0, block_samples, 0.0)
    return replace(measurement(100), blocks=(block,) * blocks, warmup_samples=warmup)


def test_both_sides_take_the_samples_of_the_slower_one():
    plans = []
    seeds = []

    def time(config, folder, plan, host, seed):
        plans.append(plan)
        seeds.append(seed)
        return timed_by(80, 3, 40) if config == OWN.config else timed_by(128, 3, 320)

    stage = paired.Course(time, lambda _, run: run.samples_per_second, OWN, Path("confirm"), seed=7)
    for number in range(3):
        paired.play_round(stage, [OWN, FAST], number)
    assert plans[:2] == [paired.PLAN] * 2, "each side is timed by the clock once"
    assert [(p.block_counts, p.block_samples, p.warmup_samples) for p in plans[2:4]] == [
        ((3,), 80, 320),
        ((3,), 80, 320),
    ]
    assert [p.block_samples for p in plans[4:]] == [128, 128], "a batch of 64 makes blocks of 128"
    assert seeds == [7, 7, 8, 8, 9, 9], "a round has one seed, the next one another"
