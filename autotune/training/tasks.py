"""What a child can be asked to do, one function per task."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from autotune.config import TrainingConfig
from autotune.job import Job, MeasurePlan
from autotune.knobs.base import spelled
from autotune.measurement import Block, Measurement
from autotune.outcome import Inspected, Measured, NotApplied, Probed, SpeedLimits, TrialOutcome
from autotune.training import disturbance, inspection, memory, quality
from autotune.training.apply import TrainingSetup, apply, build_dataset
from autotune.training.batches import Batches
from autotune.training.boundary import probe_boundary
from autotune.training.settings import Settings
from autotune.training.timing import Timer
from autotune.training.workload import Workload, load_workload
from autotune.trial_folder import TrialFolder


@dataclass(frozen=True)
class Bench:
    """What a task that trains works with."""

    job: Job
    folder: TrialFolder
    workload: Workload
    config: TrainingConfig
    start_seconds: float
    """From process start until the workload was imported."""

    def setup(self, dataset: Dataset[Any], seed: int) -> TrainingSetup:
        """A training loop under the job's configuration."""
        job = self.job
        return apply(self.config, self.workload, job.device, seed, dataset, job.lr_factor)


def prepare(job: Job, folder: TrialFolder, process_start: float) -> Bench:
    """Import the workload, then put the process settings in force."""
    assert job.model_path is not None
    assert job.config is not None
    config = TrainingConfig.of(job.config)
    workload = load_workload(Path(job.model_path))
    # After the import: what the file sets for the process is part of the baseline, see `inspect`.
    Settings(config).apply_to_process()
    memory.limit_device_memory(torch.device(job.device), job.memory_limit_bytes)
    return Bench(job, folder, workload, config, time.monotonic() - process_start)


def inspect(job: Job) -> TrialOutcome:
    """What the machine allows and, where the job names one, what the workload is."""
    device = inspection.resolve_device(job.device)
    machine = inspection.describe_machine(device)
    if job.model_path is None:
        return Inspected(machine, None, inspection.device_uuid(machine.device))
    before = inspection.process_settings()
    workload = load_workload(Path(job.model_path))
    after = inspection.process_settings()
    own = {name: value for name, value in after.items() if value != before[name]}
    facts = inspection.describe_workload(workload, own)
    return Inspected(machine, facts, inspection.device_uuid(machine.device))


def measure(bench: Bench, plan: MeasurePlan) -> TrialOutcome:
    """Train for a short while and time it."""
    bench.folder.enter_phase("build")
    build_start = time.perf_counter()
    setup = bench.setup(build_dataset(bench.workload), bench.job.seed)
    build_seconds = time.perf_counter() - build_start
    bench.folder.enter_phase("warm-up")
    setup.model.train()
    step = _WatchedStep(setup)
    compiler = CompileClock(bench.config["compile_mode"] is not None)
    timer = _timer(setup, step, setup.loader, compiler)
    warm_up = timer.warm_up(plan)
    step.check_finite()
    batch_size = setup.loader.batch_size or 1
    missed = setup.not_applied()
    blocks: tuple[Block, ...] = ()
    if not missed:
        bench.folder.enter_phase("measure")
        blocks = timer.time_blocks(plan, warm_up.calm_seconds, batch_size)
        step.check_finite()
        missed = setup.not_applied()  # the user's code may have changed a setting meanwhile
    for knob, got in missed:
        return NotApplied(knob.name, spelled(bench.config[knob.name]), spelled(got))
    peak = memory.peak_memory_bytes(setup.device)
    epoch_samples = _epoch_samples(setup, timer.batches)
    return Measured(
        Measurement(
            blocks=blocks,
            boundary_seconds=_boundaries(setup, timer, blocks),
            epoch_samples=epoch_samples,
            warmup_step_seconds=warm_up.step_seconds,
            steady_step_seconds=warm_up.calm_seconds,
            compile_seconds=compiler.seconds,
            start_seconds=bench.start_seconds,
            build_seconds=build_seconds,
            peak_memory_bytes=peak,
            allocator_retries=memory.allocator_retries(setup.device),
            flags=tuple(sorted(timer.flags)),
        )
    )


def _boundaries(setup: TrainingSetup, timer: Timer, blocks: Sequence[Block]) -> tuple[float, ...]:
    """What was seen between epochs, or what is where no epoch ended."""
    seen = tuple(timer.batches.boundary_seconds)
    if seen:
        return seen
    timer.batches.close()
    rate = median(block.seconds_per_sample for block in blocks)
    return probe_boundary(setup, rate, timer.clock, timer.synchronize)


def probe(bench: Bench, samples: int, seeds: tuple[int, ...]) -> TrialOutcome:
    """Train on a fixed number of samples once per seed, and evaluate each time."""
    start = time.perf_counter()
    bench.folder.enter_phase("build")
    exam = quality.prepare_exam(bench.workload)
    bench.folder.enter_phase("probe")
    qualities = []
    for seed in seeds:
        setup = bench.setup(exam.training, seed)
        qualities.append(quality.probe(setup, exam, samples))
    return Probed(tuple(qualities), time.perf_counter() - start)


def find_limits(bench: Bench, plan: MeasurePlan) -> TrialOutcome:
    """Samples per second of the loader without training, and of training on one resident batch."""
    bench.folder.enter_phase("limits")
    setup = bench.setup(build_dataset(bench.workload), bench.job.seed)
    setup.model.train()
    batch = setup.transfer(next(iter(setup.loader)))
    compute = seconds_per_batch(setup, setup.step, itertools.repeat(batch), plan)
    loader = seconds_per_batch(setup, lambda _: None, setup.loader, plan)
    batch_size = setup.loader.batch_size or 1
    return SpeedLimits(loader=batch_size / loader, compute=batch_size / compute)


def seconds_per_batch(
    setup: TrainingSetup, step: Callable[[Any], object], source: Any, plan: MeasurePlan
) -> float:
    """What a step takes on batches of `source`, at the median block."""
    timer = _timer(setup, step, source)
    warm_up = timer.warm_up(plan)
    blocks = timer.time_blocks(plan, warm_up.calm_seconds, 1)
    return median(block.seconds_per_sample for block in blocks)


def _timer(
    setup: TrainingSetup,
    step: Callable[[Any], object],
    source: Any,
    compiler: CompileClock | None = None,
) -> Timer:
    synchronize = (
        (lambda: None)
        if setup.device.type == "cpu"
        else (lambda: torch.accelerator.synchronize(setup.device))
    )
    clock = time.perf_counter
    return Timer(
        step,
        Batches(source, clock, synchronize),
        clock,
        synchronize,
        noise=disturbance.watch(setup.device, clock),
        compilations=(lambda: 0) if compiler is None else (lambda: compiler.events),
    )


@dataclass
class _WatchedStep:
    """A training step that remembers its loss, so that it can be checked without waiting for it."""

    setup: TrainingSetup
    loss: Tensor | None = field(default=None, init=False)

    def __call__(self, batch: Any) -> None:
        self.loss = self.setup.step(batch)

    def check_finite(self) -> None:
        """Raise if the last loss is NaN or infinite; a parameter that is NaN once stays so."""
        value = math.nan if self.loss is None else float(self.loss.detach())
        if not math.isfinite(value):
            raise quality.NonFiniteLossError(f"the loss became {value}")


def _epoch_samples(setup: TrainingSetup, batches: Batches) -> int | None:
    batch_size = setup.loader.batch_size or 1
    if batches.epoch_batches is not None:
        return batches.epoch_batches * batch_size
    return len(setup.loader) * batch_size if hasattr(setup.loader.dataset, "__len__") else None


class CompileClock:
    """Counts the seconds that torch.compile says it spends, from start to end of each compile."""

    def __init__(self, compiles: bool) -> None:
        self.events = 0
        """Starts and ends so far."""
        self.seconds = 0.0
        if compiles:
            from torch._dynamo import callback

            callback.on_compile_start(lambda _: self._note(-time.perf_counter()))
            callback.on_compile_end(lambda _: self._note(time.perf_counter()))

    def _note(self, signed_now: float) -> None:
        self.events += 1
        self.seconds += signed_now
