"""The seconds of each stage decide which settings are frozen and which values dropped."""

from dataclasses import replace

import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.console.lines import profile_lines, stage_lines
from autotune.searching.run.diagnosis import (
    COMPUTE,
    LOADER,
    Diagnosis,
    limits_of,
    most_speedup,
    narrowed,
)
from autotune.values.outcome import Diagnosed, Loading
from factories import cpu_machine, cuda_machine

STAGES = Diagnosed(
    batch_size=32,
    compute_seconds=0.1,
    double_compute_seconds=0.19,
    transfer_seconds=0.01,
    loading=(Loading(0, 0.1), Loading(2, 0.05)),
    optimizer_seconds=0.02,
)
OWN = TrainingConfig.of({"batch_size": 32, "num_workers": 0})


def diagnosis(machine=None, own=OWN, offered=32, **changes):
    """Return the diagnosis of a space whose largest batch is `offered`."""
    return Diagnosis(replace(STAGES, **changes), machine or cuda_machine(), own, offered)


def space_of(**domains):
    own = OWN.as_dict()
    return SearchSpace({name: domains.get(name, (value,)) for name, value in own.items()})


def loading(alone):
    return (Loading(0, alone), Loading(2, alone / 2))


def test_larger_batches_gain_what_is_left_of_their_overhead():
    """A step takes 0.01 + 0.09 seconds, of which the second part grows, as loading does."""
    rates = diagnosis(loading=loading(0.02), transfer_seconds=0.0).batch_rates((16, 32, 64, 128))
    seconds = {16: 0.01 + 0.045 + 0.01, 32: 0.12, 64: 0.01 + 0.18 + 0.04, 128: 0.01 + 0.36 + 0.08}
    assert rates == pytest.approx({size: size / taken for size, taken in seconds.items()})


def test_a_batch_twice_as_large_that_computes_no_longer_doubles_the_rate():
    """Until the fastest loader, which two workers are here, or the copies are all that is left."""
    own = OWN.replace(num_workers=2)
    free = diagnosis(own=own, double_compute_seconds=0.095, transfer_seconds=0.0)
    assert free.batch_rates((32, 48)) == pytest.approx({32: 320, 48: 480})
    assert free.batch_rates((1024,))[1024] == pytest.approx(32 / free.fastest_load_seconds)
    copied = diagnosis(own=own, double_compute_seconds=0.1, loading=loading(1e-6))
    assert copied.batch_rates((4096,))[4096] == pytest.approx(4096 / (0.1 + 0.01 * 128))


@pytest.mark.parametrize("double", [0.195, 0.2, 0.25])
def test_some_of_a_step_never_grows_whatever_the_noise_of_its_timing(double):
    """A twentieth of a step of 0.1 seconds; else all sizes would have one rate, small ones too."""
    slow = diagnosis(loading=(), transfer_seconds=0.0, double_compute_seconds=double)
    rates = slow.batch_rates((8, 32, 128))
    expected = {8: 8 / (0.005 + 0.095 / 4), 32: 320, 128: 128 / (0.005 + 0.38)}
    assert rates == pytest.approx(expected)


def test_kernels_bound_the_rate_of_a_batch_that_seemed_free():
    free = diagnosis(
        loading=(), transfer_seconds=0.0, double_compute_seconds=0.1, busy_seconds=0.02
    )
    assert free.batch_rates((4096,)) == pytest.approx({4096: 32 / 0.02})


def test_an_idle_gpu_takes_larger_batches_until_its_kernels_fill_a_step():
    """As in a script, which chooses its batch itself."""
    idle = diagnosis(loading=(), transfer_seconds=0, double_compute_seconds=None, busy_seconds=0.01)
    rates = idle.batch_rates((16, 32, 320, 3200))
    assert rates == pytest.approx({16: 160, 32: 320, 320: 3200, 3200: 3200})


def test_nothing_is_expected_of_batches_where_nothing_tells():
    assert diagnosis(double_compute_seconds=None).batch_rates((32, 64)) == {}


def test_the_narrowed_space_has_the_rates_of_the_batches_in_it():
    space = space_of(batch_size=(16, 32, 64))
    assert narrowed(space, diagnosis()).batch_rates.keys() == {16, 32, 64}


@pytest.mark.parametrize(
    ("changed", "pays"),
    [
        ({}, True),
        ({"double_compute_seconds": 0.12}, False),  # mostly overhead, which threads do not share
        ({"double_compute_seconds": None}, True),
        ({"double_compute_seconds": None, "compute_seconds": 0.005}, False),
        ({"loading": loading(0.05)}, False),  # workers take their part of the cores
        ({"loading": ()}, False),  # a step contains whatever makes its batch
    ],
)
def test_threads_pay_where_a_step_is_mostly_arithmetic(changed, pays):
    """On a CPU; a GPU leaves its host's cores to loading."""
    stages, space = {"loading": loading(0.001), **changed}, space_of(num_threads=(1, 2))
    own = cpu_machine()
    found = narrowed(space, diagnosis(own, **stages)).paying_threads
    assert found == (own.default_num_threads if pays else 1)
    assert narrowed(space, diagnosis(cuda_machine(), **stages)).paying_threads == 1


def test_threads_beyond_the_cores_of_a_process_do_not_pay():
    """A container may have fewer than PyTorch sees, or two processes share them."""
    machine, stages = cpu_machine(), {"loading": loading(0.001)}
    quota = replace(machine, default_num_threads=64)
    cores = machine.host.usable_cores
    assert diagnosis(quota, **stages).paying_threads == cores
    assert diagnosis(machine, processes=2, **stages).paying_threads == max(1, cores // 2)


@pytest.mark.parametrize(
    ("changes", "frozen"),
    [
        ({}, set()),
        ({"loading": loading(0.001)}, set()),  # a faster computation would wait for it
        ({"loading": loading(0.0007)}, set(LOADER)),
        ({"loading": loading(0.0001), "own": OWN.replace(num_workers=4)}, set()),
        ({"loading": loading(3.2)}, set(COMPUTE)),  # no loader keeps up
        ({"loading": loading(3.2), "machine": cpu_machine()}, set()),  # workers share its cores
        ({"transfer_seconds": 0.0002}, {"pin_memory"}),
        ({"optimizer_seconds": 0.0007}, {"optimizer_impl"}),
    ],
)
def test_a_stage_that_takes_next_to_nothing_is_frozen(changes, frozen):
    assert set(diagnosis(**changes).frozen()) == frozen


def test_what_is_frozen_has_a_reason():
    assert diagnosis(loading=loading(0.0007)).frozen()["num_workers"] == (
        "loading takes 0.7 % of computing"
    )
    frozen = diagnosis(loading=loading(3.2)).frozen()
    assert "less than the 320 that computing reaches" in frozen["amp_dtype"]


def test_less_speed_is_to_be_expected_on_a_cpu_without_half_precision():
    little, cpu = loading(0.0013), cpu_machine()
    own = space_of()
    plain = replace(diagnosis(cpu, loading=little), most_speedup=most_speedup(own, cpu))
    assert set(LOADER) == set(plain.frozen())
    halves = space_of(amp_dtype=(None, "bfloat16"))
    half = replace(plain, most_speedup=most_speedup(halves, cpu))
    assert half.frozen() == {}
    for more in (
        halves,
        space_of(float32_matmul_precision=("highest", "medium")),
        space_of(num_threads=(1, 4)),
    ):
        assert most_speedup(own, cuda_machine()) == most_speedup(more, cpu)
    assert most_speedup(space_of(num_threads=(1, 2)), cpu) == plain.most_speedup


def test_a_larger_batch_takes_longer_on_a_cpu_where_none_was_timed():
    untimed = {"double_compute_seconds": None, "offered": 2048}
    assert set(LOADER) == set(diagnosis(cpu_machine(), loading=loading(0.0002), **untimed).frozen())
    assert not diagnosis(cpu_machine(), loading=loading(0.001), **untimed).frozen()
    assert not diagnosis(cuda_machine(), loading=loading(0.0002), **untimed).frozen()


def test_a_stage_that_a_large_batch_would_wait_for_is_not_frozen():
    """A step takes as long whatever its batch, so 4096 samples are computed as soon as 32 are."""
    flat = {"loading": loading(0.0002), "double_compute_seconds": 0.1}
    assert set(LOADER) <= set(diagnosis(offered=32, **flat).frozen())
    assert not diagnosis(offered=4096, **flat).frozen()


def test_workers_beyond_any_need_are_dropped():
    small = narrowed(space_of(num_workers=(0, 1, 2, 4, 8)), diagnosis(loading=loading(0.01)))
    assert small.domains["num_workers"] == (0, 1, 2)
    assert "num_workers=4, 8 dropped" in small.notes[0]


def test_cuda_graphs_are_dropped_where_launching_could_never_be_waited_for():
    modes = (None, "default", "reduce-overhead", "max-autotune")
    few = narrowed(space_of(compile_mode=modes), diagnosis(launch_seconds=0.02))
    assert few.domains["compile_mode"] == (None, "default", "max-autotune")
    assert "launching a step takes 20 % of computing it" in few.notes[0]
    without = (*modes, "max-autotune-no-cudagraphs")  # offers the kernels without the graphs
    few = narrowed(space_of(compile_mode=without), diagnosis(launch_seconds=0.02))
    assert few.domains["compile_mode"] == (None, "default", "max-autotune-no-cudagraphs")
    for launch in (None, 0.03, 0.2):  # four times as fast a computation would wait
        same = narrowed(space_of(compile_mode=modes), diagnosis(launch_seconds=launch))
        assert same.domains["compile_mode"] == modes


@pytest.mark.parametrize("double", [None, 0.09, 0.1, 0.2, 0.22])
def test_batches_are_never_dropped(double):
    """A model that computes no faster in float32 may in bfloat16: in a recorded table it does."""
    sizes = (32, 64, 4096)
    same = narrowed(
        space_of(batch_size=sizes), diagnosis(offered=4096, double_compute_seconds=double)
    )
    assert same.domains["batch_size"] == sizes


def test_the_users_own_settings_stay_in_the_space():
    own = OWN.replace(batch_size=512, num_workers=8)
    stages = {"double_compute_seconds": 0.2, "loading": loading(0.001), "offered": 1024}
    space = space_of(batch_size=(32, 512, 1024), num_workers=(0, 2, 8))
    small = narrowed(space, diagnosis(own=own, **stages))
    assert 512 in small.domains["batch_size"]
    assert 8 in small.domains["num_workers"]
    assert small.within(own) == own


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({"loading": loading(0.2)}, "loading"),
        ({"loading": loading(0.02)}, "computing"),
        ({"transfer_seconds": 0.4}, "copying"),
    ],
)
def test_the_slowest_stage_is_what_bounds(changes, bound):
    assert diagnosis(**changes).bound == bound


@pytest.mark.parametrize(
    ("launch", "busy", "bound"),
    [
        (0.099, 0.045, "launching"),
        (0.099, None, "launching"),
        (0.099, 0.097, "computing"),  # both take as long: the GPU is never idle
        (0.079, 0.021, "launching"),  # as timed on an H200: kernels follow their launching
        (0.079, 0.085, "computing"),  # kernels take longer than their launching
        (0.02, 0.045, "computing"),  # it is idle, but not because of Python
        (None, None, "computing"),
    ],
)
def test_a_gpu_that_waits_for_launches_is_significant_from_one_that_computes(launch, busy, bound):
    stages = {"launch_seconds": launch, "busy_seconds": busy, "loading": loading(0.02)}
    found = diagnosis(**stages)
    assert found.bound == bound
    limits = found.stage_limits()
    if bound == "launching":
        assert limits["launching"] == 320.0, "a step is as long as its launching"
        assert limits["computing"] == pytest.approx(32 / (busy or 0.1))


def test_the_share_of_a_step_in_which_the_gpu_is_busy_is_said():
    said = "The GPU is busy 45 % of a step: it waits for kernel launches."
    waits = diagnosis(launch_seconds=0.099, busy_seconds=0.045, loading=loading(0.02))
    assert said in stage_lines(waits)[-1]
    assert "launch " in "\n".join(stage_lines(waits))
    assert f"  {said}" in "\n".join(profile_lines(waits, [], []))
    loads = diagnosis(launch_seconds=0.099, busy_seconds=0.045, loading=loading(0.5))
    assert loads.bound == "loading"
    assert stage_lines(loads)[-1].endswith("busy 45 % of a step."), "graphs would gain nothing"
    busy = diagnosis(launch_seconds=0.02, busy_seconds=0.12)
    assert stage_lines(busy)[-1].endswith("busy 100 % of a step.")
    assert not any("GPU" in line for line in stage_lines(diagnosis()))


def test_limits_are_what_each_stage_could_do_alone():
    limits = limits_of(diagnosis(cpu_machine(), transfer_seconds=0.0).stages)
    assert limits == pytest.approx(
        {
            "loader, num_workers=0": 320.0,
            "loader, num_workers=2": 640.0,
            "compute": 320.0,
            "optimizer step": 1600.0,
        }
    )


IDLE = {"loading": loading(0.0001), "optimizer_seconds": 0.0001, "transfer_seconds": 0.0001}
"""Return what would be frozen, and the workers dropped."""


@pytest.mark.parametrize("reached", [None, 300.0, 1.3 * 320, 1.45 * 320])
def test_noise_throws_no_doubt_on_the_stages(reached):
    timed = replace(diagnosis(**IDLE), reached=reached)
    space = space_of(num_workers=(0, 2, 64), pin_memory=(False, True))
    assert timed.doubt is None
    assert narrowed(space, timed).size < space.size


def test_stages_that_training_outruns_leave_nothing_out():
    """Something else ran while they were timed: computing did not take what they say."""
    timed = replace(diagnosis(**IDLE), reached=3.57 * 320)
    space = space_of(num_workers=(0, 2, 64), pin_memory=(False, True))
    assert narrowed(space, timed).domains == space.domains
    (note,) = narrowed(space, timed).notes
    assert "nothing is left out: training reaches 357 % of what computing reached by itself" in note


@pytest.mark.parametrize(
    ("reached", "says"),
    [
        (300.0, "  training reaches 300.0 samples/s, 94 % of computing by itself"),
        (1142.4, "  run it again: training reaches 357 % of what computing reached by itself"),
        (None, "diagnosis: the bottleneck is computing; "),
    ],
)
def test_a_profile_says_how_much_is_left_to_win(reached, says):
    timed = replace(diagnosis(loading=loading(0.02)), reached=reached)
    shown = "\n".join(profile_lines(timed, [], []))
    assert says in shown
    assert ("run it again" in shown) is (reached == 1142.4)
