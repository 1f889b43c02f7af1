"""What a run of known length is told: its one-time seconds, and its time as the objective."""

from dataclasses import asdict, replace

import pytest

from autotune.configuration.constraints import THROUGHPUT, Objective, fixed_seconds
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.confirmation.result import ColdCosts
from factories import measurement
from study_factories import trial

EAGER = measurement(100.0)
"""2 s to start, 0.5 s to build, 0.4 s more in the first step."""
COMPILED = replace(measurement(200.0), warmup_step_seconds=(40.1, 0.1), compile_seconds=38.0)


def test_one_time_seconds_are_start_building_and_warming_up_in_a_cold_cache():
    assert fixed_seconds(EAGER) == pytest.approx(2 + 0.5 + 0.4)
    assert fixed_seconds(COMPILED) == pytest.approx(2 + 0.5 + 40)
    assert fixed_seconds(EAGER, cold_one_time_seconds=30) == pytest.approx(32.5)
    assert fixed_seconds(COMPILED, cold_one_time_seconds=30) == pytest.approx(42.5)


def test_the_time_of_a_run_is_told_as_its_throughput():
    whole = Objective(1000).value(EAGER)
    assert 1000 / whole == pytest.approx(2.9 + 1000 / 100)


def test_a_run_without_end_is_judged_by_its_throughput():
    throughput = THROUGHPUT
    assert throughput.value(COMPILED) == pytest.approx(200)
    assert Objective(10**12).value(COMPILED) == pytest.approx(200, rel=1e-6)


def timed(number, run, **settings):
    return trial(
        number,
        run.samples_per_second,
        config=TrainingConfig.of(settings),
        stored_measurement=asdict(run),
    )


def test_a_run_with_a_warm_cache_is_charged_what_the_first_one_paid():
    warm = replace(COMPILED, warmup_step_seconds=(5.1, 0.1), compile_seconds=4.0)
    first = timed(1, COMPILED, batch_size=64, compile_mode="default")
    second = timed(2, warm, batch_size=64, compile_mode="default", num_workers=2)
    larger = timed(3, warm, batch_size=128, compile_mode="default")
    costs = ColdCosts([timed(0, EAGER), first, second, larger], [EAGER])
    assert costs.compile_seconds(second.config) == 38
    assert costs.compile_seconds(larger.config) == 4, "another batch size is another graph"
    assert costs.fixed_seconds(first.config, COMPILED) == pytest.approx(42.5)
    assert costs.fixed_seconds(second.config, warm) == pytest.approx(42.5)


@pytest.mark.parametrize("own", [{"compile_mode": "default"}, {}], ids=["asked", "by itself"])
def test_a_baseline_that_compiles_is_charged_what_its_first_process_paid(own):
    warm = replace(COMPILED, warmup_step_seconds=(5.1, 0.1), compile_seconds=4.0)
    own = timed(0, warm, **own)
    costs = ColdCosts([own], [COMPILED, warm, warm])
    assert costs.compile_seconds(own.config) == 38
    assert costs.fixed_seconds(own.config, warm) == pytest.approx(42.5)


def test_a_compilation_among_steps_that_were_taken_for_steady_is_charged():
    mixed = replace(COMPILED, steady_step_seconds=20.1)
    assert mixed.one_time_seconds == 38


def test_a_run_without_compilation_is_charged_what_its_own_process_paid():
    slow_once = replace(EAGER, warmup_step_seconds=(3.1, 0.1))
    own = timed(0, slow_once)
    costs = ColdCosts([own], [slow_once, EAGER, EAGER])
    assert costs.fixed_seconds(own.config, EAGER) == pytest.approx(2.9)
    assert costs.compile_seconds(own.config) == 0
