"""Time training, computing alone and loading alone under one configuration, in turns.

Two processes, or two moments, differ by more than the stages of one do. So the blocks of all three
take turns in one process, and only ratios within a round of blocks are used.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from autotune.configuration.job import FindLimits, MeasurePlan
from autotune.knobs.affinity import AFFINITY
from autotune.limits.flops import count_flops
from autotune.limits.matmul_rate import matmul_rate
from autotune.training import disturbance
from autotune.training.loading.batches import Batches
from autotune.training.tasks import CompileClock, LoadedJob
from autotune.training.timing import Step, Timer, synchronize
from autotune.training.training_setup import TrainingSetup, build_dataset
from autotune.values.measurement import Block
from autotune.values.outcome import TrialOutcome
from autotune.values.stages import SpeedLimits, StageRound

# Batches that computing alone gets in turn: one alone may take longer than others.
_BATCHES = 4
_FEWEST_ROUNDS = 3
# Seconds that the workers get to fill their queue before computing alone is timed.
_FILL_SECONDS = 0.5


def find_limits(loaded: LoadedJob, task: FindLimits) -> TrialOutcome:
    """Time the stages in turns, then count the FLOPs of a step, all under the job's configuration.

    Raises:
        WorkloadError: the workload built something of the wrong type, or too small a dataset.
    """
    loaded.folder.enter_phase("limits")
    setup = loaded.setup(build_dataset(loaded.workload), loaded.job.seed)
    setup.model.train()
    stages = _stages(setup)
    found = SpeedLimits(tuple(_rounds(stages, task.plan, setup.loader.batch_size or 1)))
    stages.training.batches.close()
    return _with_arithmetic(found, setup, stages.resident, task)


def _with_arithmetic(
    found: SpeedLimits, setup: TrainingSetup, resident: list[Any], task: FindLimits
) -> SpeedLimits:
    """Add the FLOPs of a sample and, unless the search knows it, the rate of matrix products."""
    steps = [partial(setup.step, itertools.repeat(batch)) for batch in resident]
    counted = count_flops(steps, setup.device)
    if isinstance(counted, str):
        return replace(found, uncounted=counted)
    if counted.number_format not in task.known_formats:
        AFFINITY.on_process(None)  # the rate is of the whole machine
        torch.set_num_threads(task.machine_threads)
        rate = matmul_rate(setup.device, counted.number_format)
        found = replace(found, matmul_flops_per_second=rate)
    samples = len(resident) * setup.batches_per_step * (setup.loader.batch_size or 1)
    return replace(
        found,
        flops_per_sample=counted.flops / samples,
        number_format=counted.number_format,
    )


@dataclass(frozen=True)
class _Stages:
    """Timers of training and of its stages; training and loading draw from the same batches."""

    training: Timer
    computing: Timer
    loading: Timer
    resident: list[Any]
    """Batches on the device, with which computing alone is timed."""


def _stages(setup: TrainingSetup) -> _Stages:
    clock, wait = time.perf_counter, partial(synchronize, setup.device)
    noise = disturbance.watch(setup.device, clock)
    compiler = CompileClock(setup.config["compile_mode"] is not None)

    def timer(step: Step, batches: Batches, each: int) -> Timer:
        compilations = lambda: compiler.events  # noqa: E731
        return Timer(step, batches, clock, wait, noise, compilations, batches_per_step=each)

    ahead = partial(setup.settings.copied_ahead, device=setup.device)
    stream, each = Batches(setup.loader, clock, wait, ahead), setup.batches_per_step
    resident = [setup.transfer(next(stream)) for _ in range(_BATCHES)]
    return _Stages(
        training=timer(setup.step, stream, each),
        computing=timer(setup.step, Batches(itertools.cycle(resident), clock, wait), each),
        loading=timer(next, stream, 1),
        resident=resident,
    )


def _rounds(stages: _Stages, plan: MeasurePlan, batch_size: int) -> list[StageRound]:
    """Time a block of each, again and again, until enough rounds are undisturbed or time is up.

    Args:
        stages: the timers.
        plan: its first look is the number of undisturbed rounds; twice as many are timed at most.
        batch_size: samples of a batch.
    """
    timers = (stages.training, stages.computing, stages.loading)
    seconds = [timer.warm_up(plan).calm_seconds for timer in timers]
    clock, rounds = stages.training.clock, list[StageRound]()
    start = clock()
    while True:
        _drain(stages.training, plan)
        training = _block(stages.training, plan, seconds[0], batch_size)
        _let_fill(stages)
        computing = _block(stages.computing, plan, seconds[1], batch_size)
        _drain(stages.loading, plan)
        loading = _block(stages.loading, plan, seconds[2], batch_size)
        rounds.append(StageRound(training, computing, loading))
        blocks = (training, computing, loading)
        seconds = [
            timer.batches_per_step * batch_size * block.seconds / block.samples
            for timer, block in zip(timers, blocks, strict=True)
        ]
        calm = sum(not one.is_disturbed for one in rounds)
        late = clock() - start > plan.max_seconds and len(rounds) >= _FEWEST_ROUNDS
        if calm >= plan.looks[0] or len(rounds) >= 2 * plan.looks[0] or late:
            return rounds


def _block(timer: Timer, plan: MeasurePlan, step_seconds: float, batch_size: int) -> Block:
    """Time one block, disturbed or not."""
    once = replace(plan, looks=(1,), most_disturbed=0)
    return timer.time_blocks(once, step_seconds, batch_size)[-1]


def _drain(timer: Timer, plan: MeasurePlan) -> None:
    """Use up the batches that lie ready, which workers loaded while computing alone was timed."""
    if timer.batches.workers:
        timer.warm_up(replace(plan, warmup_steps=1))


def _let_fill(stages: _Stages) -> None:
    """Compute until the workers' queue is full: until then they take cores from computing."""
    batches, computing = stages.training.batches, stages.computing
    full = batches.queued - batches.workers
    until = computing.clock() + _FILL_SECONDS
    while batches.workers and (batches.ready() or 0) < full and computing.clock() < until:
        computing.step(computing.batches)
        computing.synchronize()
    computing.noise()
