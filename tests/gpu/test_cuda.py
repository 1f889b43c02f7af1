"""Settings and jobs on each device; what only CUDA has is marked so, with its reason."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autotune.configuration.job import CountFlops, Inspect, Job, Measure, Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import spelled
from autotune.training.apply_settings import Settings
from autotune.training.batches import endless
from autotune.training.training_setup import apply, build_dataset
from autotune.training.workload import load_workload
from autotune.values.outcome import CountedFlops, Inspected, OutOfMemory, Probed
from children import ended_as, measured
from covering import covers
from factories import TINY_CONV, cpu_machine, cuda_machine, written
from gpus import CUDA, QUICK, cuda_only, job_on, on_cuda

DEVICE_HOG = Path(__file__).parent.parent / "workloads" / "cuda_hog.py"
LIMIT = 1 << 29
COMPILING = [value for value in KNOBS["compile_mode"].suggestions(cuda_machine()) if value]


# With tests of their own, as those of several processes: `test_cuda_graphs.py`, contract tests.
ELSEWHERE = {"num_workers", "batch_size"}
ELSEWHERE |= {"sdpa_backend", "activation_checkpointing", "compile_scope"}
ELSEWHERE |= {"gc", "merge_param_groups", "fill_uninitialized_memory"}
ON = {"num_workers": 1, "compile_mode": "default"}
"""Settings under which the knobs that need another one have an effect."""


def values_on(machine):
    """Values that may work on such a machine and needs no process of its own."""
    return [
        (machine.device, knob, value)
        for knob in ALL_KNOBS
        for value in knob.suggestions(machine)
        if knob.name not in ELSEWHERE
        and not knob.of_ranks
        and not (knob.needs == "compile_mode" and machine.device == "cpu")
        and not knob.environ(value)
        and not (knob.name == "compile_mode" and value)
    ]


def every_value():
    return [*values_on(cpu_machine()), *(on_cuda(*row) for row in values_on(cuda_machine()))]


def skip_where_impossible(knob, value, machine):
    """A real machine allows less than the one by which the values were listed."""
    if obstacle := knob.obstacle(value, machine):
        pytest.skip(obstacle)


# PyTorch warns of settings that it has better names for, which is no fault of theirs.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("device", "knob", "value"),
    every_value(),
    ids=lambda part: getattr(part, "name", None) or spelled(part),
)
def test_every_value_that_the_device_allows_takes_effect(device, knob, value, machine_of):
    skip_where_impossible(knob, value, machine_of(device))
    needed = {knob.needs: ON.get(knob.needs, True)} if knob.needs else {}
    settings = {"batch_size": 8, "num_threads": 1, knob.name: value, **needed}
    config = TrainingConfig.of(settings)
    Settings(config).apply_to_process()
    workload = load_workload(TINY_CONV)
    setup = apply(config, workload, device, 0, build_dataset(workload))
    setup.step(endless(setup.loader))
    assert setup.not_applied() == []


@pytest.mark.parametrize(
    ("device", "mode"), [("cpu", "default"), *(on_cuda(CUDA, mode) for mode in COMPILING)]
)
def test_every_compile_mode_takes_effect(device, mode, ask, machine_of):
    skip_where_impossible(KNOBS["compile_mode"], mode, machine_of(device))
    run = measured(ask(job_on(device, Measure(QUICK), compile_mode=mode)))
    assert run.compile_seconds > 0


def test_float16_trains_under_a_gradient_scaler(device, ask):
    measured(ask(job_on(device, Measure(QUICK), amp_dtype="float16")))


@cuda_only("a CPU has neither graphs nor a copy for which memory is pinned")
def test_cuda_graphs_train_with_pinned_memory(ask):
    settings = {"compile_mode": "reduce-overhead", "pin_memory": True, "num_workers": 1}
    run = measured(ask(job_on(CUDA, Measure(QUICK), **settings)))
    assert run.compile_seconds > 0


@cuda_only("on a CPU the peak is that of the process, which knows no segments")
def test_the_peak_is_what_the_allocator_reserved(ask):
    run = measured(ask(job_on(CUDA, Measure(QUICK))))
    assert run.peak_memory_bytes % (2 << 20) == 0


@covers("T3")
@cuda_only("on a CPU the runner holds the limit, from outside")
def test_a_memory_limit_makes_the_allocator_fail_inside_the_trial(ask):
    outcome = ended_as(OutOfMemory, ask(job_on(CUDA, Measure(QUICK), DEVICE_HOG, LIMIT)))
    assert outcome.memory == "device"


@cuda_only("half a gigabyte holds no process that trains, libraries included")
def test_a_memory_limit_that_suffices_changes_nothing(ask):
    run = measured(ask(job_on(CUDA, Measure(QUICK), memory_limit_bytes=LIMIT)))
    assert run.peak_memory_bytes <= LIMIT


def test_a_probe_runs_on_the_device(device, ask):
    assert isinstance(outcome := ask(job_on(device, Probe(64, (0, 1)))), Probed), outcome


def test_the_limits_are_found_on_the_device(device, ask):
    job = job_on(device, CountFlops(), num_workers=1, pin_memory=device != "cpu")
    assert isinstance(outcome := ask(job), CountedFlops), outcome
    assert outcome.flops_per_sample
    assert outcome.matmul_flops_per_second


def test_the_machine_is_described_with_its_device(device, ask):
    outcome = ended_as(Inspected, ask(Job(Inspect(), "cpu" if device == "cpu" else "auto")))
    machine = outcome.machine
    assert machine.device == device
    assert (machine.device_memory_bytes is None) is (device == "cpu")
    if machine.device_memory_bytes is not None:
        assert machine.memory_bytes == torch.cuda.get_device_properties(0).total_memory


@cuda_only("a CPU cannot be hidden")
def test_a_file_that_hides_the_gpus_is_searched_on_the_cpu(ask, tmp_path):
    hides = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
    model = written(tmp_path, hides + TINY_CONV.read_text(), "model.py")
    outcome = ended_as(Inspected, ask(Job(Inspect(), "auto", str(model))))
    assert outcome.machine.device == "cpu"


@cuda_only("a CPU's memory is not divided so")
def test_the_parts_of_the_memory_are_told(ask):
    run = measured(ask(job_on(CUDA, Measure(QUICK))))
    memory = run.device_memory
    assert 0 < memory.allocated <= memory.reserved == run.peak_memory_bytes
    assert memory.context > 0
    assert memory.free + memory.context <= memory.total


@cuda_only("a CPU is asked for at no cost")
def test_settings_are_put_into_force_without_the_first_use_of_cuda():
    """A launcher that forks its workers would fail afterwards."""
    program = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "import autotune, torch\n"
        "autotune.load(sys.argv[1]).apply_to_process()\n"
        "print(torch.cuda.is_initialized())"
    )
    answer = Path(__file__).parents[2] / "benchmarks" / "gpu" / "probe_answer.yaml"
    words = [sys.executable, "-c", program, str(answer)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "False\n"
