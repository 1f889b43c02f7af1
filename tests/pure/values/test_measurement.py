"""Rates, intervals and flags are derived from the raw numbers of one child."""

from dataclasses import replace

import pytest

from autotune.values.measurement import Block, Noise, disturbance_of
from autotune.values.outcome import Measured, outcome_from_json, outcome_to_json
from factories import measurement


def blocks(*seconds):
    return tuple(Block(each, 100, wait_seconds=0.0) for each in seconds)


def of(*seconds):
    return replace(measurement(), blocks=blocks(*seconds))


def test_throughput_is_the_samples_over_the_seconds_so_that_slow_steps_count():
    assert of(1.0, 1.0, 2.0, 2.0, 4.0).samples_per_second == 50


def test_what_other_programs_slowed_does_not_count():
    slowed = Block(60.0, 100, 0.0, noise=Noise(foreign=0.5))
    run = replace(measurement(), blocks=(*blocks(1.0, 1.0, 4.0), slowed))
    assert run.samples_per_second == 50


def test_each_sample_carries_its_share_of_an_epoch_boundary():
    run = replace(of(1.0, 1.0, 1.0), boundary_seconds=(1.0, 2.0, 9.0), epoch_samples=200)
    # 100 samples in 1 s, and 4 s (the mean boundary) for every 200 samples.
    assert run.seconds_per_sample == pytest.approx(0.01 + 0.02)


def test_boundaries_count_nothing_where_the_length_of_an_epoch_is_unknown():
    run = replace(of(1.0), boundary_seconds=(5.0,), epoch_samples=None)
    assert run.samples_per_second == 100


def test_blocks_of_different_length_are_compared_by_the_sample():
    run = replace(measurement(), blocks=(Block(1.0, 100, 0.0), Block(3.0, 300, 0.0)))
    assert run.samples_per_second == 100


def test_one_slow_block_makes_the_interval_of_throughput_wide():
    even, uneven = of(*(2.0,) * 6), of(*(1.0,) * 5, 7.0)
    assert even.samples_per_second_interval == (pytest.approx(50), pytest.approx(50))
    low, high = uneven.samples_per_second_interval
    assert low < 25
    assert high > 100
    assert uneven.samples_per_second == pytest.approx(50)


def test_the_interval_counts_the_boundaries_as_the_value_does():
    run = replace(of(1.0, 1.0, 1.0), boundary_seconds=(1.0,), epoch_samples=100)
    assert run.samples_per_second_interval == (pytest.approx(50), pytest.approx(50))
    assert run.samples_per_second == pytest.approx(50)


def test_one_time_seconds_are_what_the_warm_up_cost_beyond_steady_steps():
    steps = (5.0, 1.0, 2.0, 1.0, 2.0)  # a stall, and batches that come in bursts
    run = replace(measurement(), warmup_step_seconds=steps, steady_step_seconds=1.5)
    assert run.one_time_seconds == pytest.approx(3.5)


def disturbed(*seconds):
    return tuple(replace(block, noise=Noise(foreign=0.5)) for block in blocks(*seconds))


def test_disturbed_blocks_do_not_count_where_there_are_enough_others():
    run = replace(measurement(), blocks=(*blocks(*[1.0] * 6), *disturbed(9.0, 9.0)))
    assert run.samples_per_second == 100
    assert run.disturbed_blocks == 0


def test_they_count_where_there_are_too_few_others_and_it_is_said_how_many():
    run = replace(measurement(), blocks=(*blocks(*[1.0] * 5), *disturbed(*[2.0] * 8)))
    assert run.samples_per_second == pytest.approx(1300 / 21)
    assert run.disturbed_blocks == 8


def test_a_disturbed_fourth_block_after_three_slow_ones_does_not_count():
    run = replace(measurement(), blocks=(*blocks(*[1.0] * 3), *disturbed(9.0)))
    assert not run.is_disturbed
    assert run.samples_per_second == 100
    mostly = replace(run, blocks=(*blocks(*[1.0] * 3), *disturbed(*[9.0] * 4)))
    assert mostly.is_disturbed


def test_of_uneven_steps_disturbed_blocks_count_and_those_of_a_stopped_process_do_not():
    stopped = Block(60.0, 100, 0.0, noise=Noise(stopped=1))
    timed = (*blocks(*[1.0] * 6), *disturbed(2.0), stopped)
    run = replace(measurement(), blocks=timed, flags=("uneven",))
    assert run.seconds_per_sample == pytest.approx(8.0 / 700)


def test_a_run_is_disturbed_where_the_blocks_that_it_rests_on_are():
    calm = replace(measurement(), blocks=(*blocks(*[1.0] * 6), *disturbed(9.0, 9.0)))
    busy = replace(measurement(), blocks=(*blocks(*[1.0] * 5), *disturbed(*[2.0] * 8)))
    assert (calm.is_disturbed, disturbance_of([calm])) == (False, "")
    assert busy.is_disturbed
    assert disturbance_of([calm, busy]) == "other programs used 50 % of the cores"


def test_everything_that_disturbed_a_run_is_named():
    noise = Noise(foreign=0.3, stolen=0.06, stopped=2, gpu="thermal")
    run = replace(measurement(), blocks=tuple(replace(b, noise=noise) for b in blocks(1.0, 1.0)))
    assert disturbance_of([run]) == (
        "other programs used 30 % of the cores, the host withheld 6 % of the cores, "
        "the process was stopped and continued, GPU: thermal"
    )


def test_use_by_others_beside_idle_cores_is_no_disturbance():
    assert not Noise(foreign=0.3, spare=0.3).disturbs
    assert not Noise(foreign=0.5, spare=0.19).disturbs
    assert Noise(foreign=0.3, spare=0.1).disturbs
    assert Noise(stolen=0.3, spare=0.6).disturbs, "what a hypervisor withheld was wanted"


def test_a_run_of_which_nobody_watched_a_block_is_flagged_and_counts_none_as_disturbed():
    unwatched = replace(blocks(1.0)[0], noise=Noise(watched=False))
    run = replace(measurement(), blocks=(*blocks(1.0, 1.0), unwatched), flags=("clock",))
    assert run.flags == ("clock", "unwatched")
    assert run.disturbed_blocks is None
    assert run.can_win


def test_a_flag_that_follows_from_the_numbers_is_there_once_however_often_copied():
    unwatched = replace(blocks(1.0)[0], noise=Noise(watched=False))
    run = replace(measurement(), blocks=(unwatched,), flags=("unsteady",))
    outcome = outcome_from_json(outcome_to_json(Measured(replace(run, machine_speed=0.9))))
    assert isinstance(outcome, Measured)
    assert outcome.measurement.flags == ("unsteady", "unwatched")


@pytest.mark.parametrize(
    ("flags", "wins"), [((), True), (("stopped_early",), False), (("clock",), True)]
)
def test_a_run_that_was_stopped_early_cannot_win(flags, wins):
    assert replace(measurement(), flags=flags).can_win is wins


def test_one_time_seconds_are_those_of_the_compiler_where_nothing_was_warmed_up():
    run = replace(measurement(), warmup_step_seconds=(), compile_seconds=7.0)
    assert run.one_time_seconds == 7
