"""What only a CUDA device can show: `pytest -m gpu`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autotune.config import TrainingConfig
from autotune.job import FindLimits, Inspect, Job, Measure, MeasurePlan, Probe
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Knob, Value
from autotune.outcome import Inspected, Measured, OutOfMemory, Probed, SpeedLimits
from autotune.training.apply import apply, build_dataset
from autotune.training.inspection import accelerator_name, describe_machine
from autotune.training.settings import Settings
from autotune.training.workload import load_workload
from autotune.tuning.running.runner import SubprocessRunner
from factories import TINY_CONV

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # Inductor advises on TF32 and the like, which is no fault of the settings under test.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]

DEVICE = "cuda:0"
QUICK = MeasurePlan(warmup_steps=3, block_seconds=0.05, looks=(6,), max_seconds=5)
DEVICE_HOG = Path(__file__).parent.parent / "workloads" / "cuda_hog.py"


def every_value() -> list[tuple[Knob, Value]]:
    if not torch.cuda.is_available():
        return []
    machine = describe_machine(DEVICE)
    return [
        (knob, value)
        for knob in ALL_KNOBS
        for value in knob.suggestions(machine)
        if knob.name not in ("num_workers", "batch_size") and not knob.environ(value)
    ]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[SubprocessRunner]:
    with SubprocessRunner(tmp_path / "inductor") as runner:
        yield runner


def job(task: Measure | Probe | FindLimits, model: Path = TINY_CONV, **settings: Value) -> Job:
    config = TrainingConfig.of({"batch_size": 8, "num_threads": 1, **settings})
    return Job(task, DEVICE, str(model), config.as_dict())


@pytest.mark.parametrize(
    ("knob", "value"), every_value(), ids=lambda part: getattr(part, "name", str(part))
)
def test_every_value_that_the_gpu_allows_takes_effect(knob: Knob, value: Value) -> None:
    needed = {knob.needs: 1} if knob.needs else {}
    settings = {"batch_size": 8, "num_threads": 1, knob.name: value, **needed}
    config = TrainingConfig.of(settings)
    Settings(config).apply_to_process()
    workload = load_workload(TINY_CONV)
    setup = apply(config, workload, DEVICE, 0, build_dataset(workload))
    for batch in setup.loader:
        setup.step(batch)
        break
    assert setup.not_applied() == []


def test_float16_trains_under_a_gradient_scaler(runner: SubprocessRunner, tmp_path: Path) -> None:
    outcome = runner.run(job(Measure(QUICK), amp_dtype="float16"), tmp_path / "trial")
    assert isinstance(outcome, Measured)


def test_cuda_graphs_train_with_pinned_memory(runner: SubprocessRunner, tmp_path: Path) -> None:
    settings = {"compile_mode": "reduce-overhead", "pin_memory": True, "num_workers": 1}
    outcome = runner.run(job(Measure(QUICK), **settings), tmp_path / "trial")
    assert isinstance(outcome, Measured)
    assert outcome.measurement.compile_seconds > 0


def test_the_peak_is_what_the_allocator_reserved(runner: SubprocessRunner, tmp_path: Path) -> None:
    outcome = runner.run(job(Measure(QUICK)), tmp_path / "trial")
    assert isinstance(outcome, Measured)
    assert outcome.measurement.peak_memory_bytes % (2 << 20) == 0  # segments of the allocator


def test_a_memory_limit_makes_the_allocator_fail_inside_the_trial(
    runner: SubprocessRunner, tmp_path: Path
) -> None:
    small = job(Measure(QUICK), DEVICE_HOG)
    limited = Job(small.task, DEVICE, small.model_path, small.config, memory_limit_bytes=1 << 29)
    outcome = runner.run(limited, tmp_path / "trial")
    assert isinstance(outcome, OutOfMemory)
    assert outcome.memory == "device"


def test_probe_and_limits_run_on_the_gpu(runner: SubprocessRunner, tmp_path: Path) -> None:
    assert isinstance(runner.run(job(Probe(64, (0, 1))), tmp_path / "probe"), Probed)
    assert isinstance(runner.run(job(FindLimits(QUICK)), tmp_path / "limits"), SpeedLimits)


def test_the_machine_is_described_with_its_gpu(runner: SubprocessRunner, tmp_path: Path) -> None:
    outcome = runner.run(Job(Inspect(), "auto"), tmp_path / "inspect")
    assert isinstance(outcome, Inspected)
    assert outcome.machine.device == DEVICE
    assert outcome.machine.memory_bytes == torch.cuda.get_device_properties(0).total_memory


def test_the_accelerator_is_called_what_best_yaml_calls_it() -> None:
    assert accelerator_name() == describe_machine(DEVICE).device_name
