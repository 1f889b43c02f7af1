"""Time training, computing alone and loading alone under one configuration, in turns.

Two processes, or two moments, differ by more than the stages of one do. So the blocks of all stages
take turns in one process, and only ratios within a round of blocks are used. Of several processes,
training without an exchange of gradients takes turns as well, and computing does without one.
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
from autotune.training.tasks import LoadedJob
from autotune.training.timing import CompileClock, Step, Timer, synchronize
from autotune.training.training_setup import TrainingSetup, build_dataset, step_apart
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
    step = step_apart(setup)
    steps = [partial(step, itertools.repeat(batch)) for batch in resident]
    counted = count_flops(steps, setup.device)
    if isinstance(counted, str):
        return replace(found, uncounted=counted)
    if counted.number_format not in task.known_formats:
        rate = setup.world.on_first(lambda: _rate(setup, counted.number_format, task))
        found = replace(found, matmul_flops_per_second=rate)
    samples = len(resident) * setup.batches_per_step * (setup.loader.batch_size or 1)
    return replace(
        found,
        flops_per_sample=counted.flops / samples,
        number_format=counted.number_format,
    )


def _rate(setup: TrainingSetup, number_format: str, task: FindLimits) -> float | None:
    """Return the rate of matrix products, while other processes wait."""
    AFFINITY.on_process(None)  # the rate is of the whole machine
    torch.set_num_threads(task.machine_threads)
    return matmul_rate(setup.device, number_format)


@dataclass(frozen=True)
class _Stages:
    """Timers of training and of its stages; training and loading draw from the same batches."""

    training: Timer
    apart: Timer | None
    """Training without an exchange; None for one process, and if the model is sharded."""
    computing: Timer
    loading: Timer
    resident: list[Any]
    """Batches on the device, with which computing alone is timed."""
    laps: list[tuple[float, ...]]
    """Seconds of each process in each lap so far, by rank."""


def _stages(setup: TrainingSetup) -> _Stages:
    clock, wait, world = time.perf_counter, partial(synchronize, setup.device), setup.world
    noise = disturbance.watch(setup.device, clock, world.launcher)
    compiler = CompileClock()
    laps: list[tuple[float, ...]] = []

    def timer(step: Step, batches: Batches, each: int) -> Timer:
        return Timer(
            step,
            batches,
            clock,
            wait,
            noise,
            compilations=lambda: compiler.events,
            batches_per_step=each,
            world=world,
            watch=lambda of_ranks: laps.append(tuple(lap.seconds for lap in of_ranks)),
        )

    ahead = partial(setup.settings.copied_ahead, device=setup.device)
    stream, each = Batches(setup.loader, clock, wait, ahead), setup.batches_per_step
    resident = [setup.transfer(next(stream)) for _ in range(_BATCHES)]
    apart = step_apart(setup)
    return _Stages(
        training=timer(setup.step, stream, each),
        apart=None if setup.ddp is None else timer(apart, stream, each),
        computing=timer(apart, Batches(itertools.cycle(resident), clock, wait), each),
        loading=timer(next, stream, 1),
        resident=resident,
        laps=laps,
    )


@dataclass
class _Rounds:
    """Rounds of blocks of the stages, with the seconds that a step of each last took."""

    stages: _Stages
    plan: MeasurePlan
    batch_size: int
    seconds: dict[str, float]

    def round(self) -> StageRound:
        """Time a block of each stage; every process takes the same ones."""
        stages = self.stages
        _drain(stages.training, self.plan)
        training = self._block("training", stages.training)
        apart = None
        if stages.apart is not None:
            _drain(stages.apart, self.plan)
            apart = self._block("apart", stages.apart)
        _let_fill(stages)
        computing = self._block("computing", stages.computing)
        # Processes that exchange something wait for each other.
        by_rank = () if apart is None else self.stages.laps[-1]
        _drain(stages.loading, self.plan)
        loading = self._block("loading", stages.loading)
        is_alone = stages.training.world.is_alone
        of_loading = () if is_alone else self.stages.laps[-1]
        return StageRound(training, computing, loading, apart, by_rank, of_loading)

    def _block(self, name: str, timer: Timer) -> Block:
        """Time one block, disturbed or not."""
        once = replace(self.plan, looks=(1,), most_disturbed=0)
        block = timer.time_blocks(once, self.seconds[name], self.batch_size)[-1]
        a_step = timer.batches_per_step * timer.world.size * self.batch_size
        self.seconds[name] = a_step * block.seconds / block.samples
        return block


def _rounds(stages: _Stages, plan: MeasurePlan, batch_size: int) -> list[StageRound]:
    """Time a block of each, again and again, until enough rounds are undisturbed or time is up.

    Rank 0 decides for all processes.

    Args:
        stages: the timers.
        plan: its first look is the number of undisturbed rounds; twice as many are timed at most.
        batch_size: samples of a batch.
    """
    timers = {"training": stages.training, "computing": stages.computing, "loading": stages.loading}
    if stages.apart is not None:
        timers["apart"] = stages.apart
    seconds = {name: timer.warm_up(plan).calm_seconds for name, timer in timers.items()}
    timing = _Rounds(stages, plan, batch_size, seconds)
    clock, world, rounds = stages.training.clock, stages.training.world, list[StageRound]()
    start, is_over = clock(), False
    while not is_over:
        rounds.append(timing.round())
        calm = sum(not one.is_disturbed for one in rounds)
        late = clock() - start > plan.max_seconds and len(rounds) >= _FEWEST_ROUNDS
        enough = calm >= plan.looks[0] or len(rounds) >= 2 * plan.looks[0]
        is_over = world.told(enough or late)
    return rounds


def _drain(timer: Timer, plan: MeasurePlan) -> None:
    """Use up the batches that lie ready, which workers loaded while computing alone was timed."""
    if timer.batches.workers:
        timer.warm_up(replace(plan, warmup_steps=1))


def _let_fill(stages: _Stages) -> None:
    """Compute until the workers' queues are full: until then they take cores from computing.

    All processes take as many steps, which may exchange something: those of a sharded model do.
    """
    batches, computing = stages.training.batches, stages.computing
    full = batches.queued - batches.workers
    until = computing.clock() + _FILL_SECONDS

    def is_filling() -> bool:
        return (batches.ready() or 0) < full and computing.clock() < until

    while batches.workers and any(computing.world.shares(is_filling())):
        computing.step(computing.batches)
        computing.synchronize()
    computing.noise()
