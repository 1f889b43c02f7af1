"""The tasks that a child carries out on a model.py, one function each."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from autotune.configuration.job import Job, MeasurePlan, Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import spelled
from autotune.process.common.trial_folder import TrialFolder
from autotune.training import memory, quality
from autotune.training.apply_settings import Settings
from autotune.training.batches import Batches
from autotune.training.before_fork import Prepared
from autotune.training.measuring import TimedTraining
from autotune.training.ranks.facts import epochs_obstacle
from autotune.training.ranks.world import ALONE, World, device_of_rank, join
from autotune.training.sample_lengths import count_tokens, worst_batch
from autotune.training.timing import CompileClock, drive, synchronize
from autotune.training.training_setup import (
    TrainingSetup,
    apply,
    build_dataset,
    scale_learning_rates,
)
from autotune.training.workload import Workload, load_workload
from autotune.values import outcome as outcomes
from autotune.values.measurement import LengthCount, Measurement


@dataclass(frozen=True)
class LoadedJob:
    """The inputs of a task that trains: job, folder, workload and configuration."""

    job: Job
    folder: TrialFolder
    workload: Workload
    config: TrainingConfig
    start_seconds: float
    """Seconds from process start until the workload was imported."""
    prepared: Prepared | None = None
    """The workload as the warm host prepared it; None if this process did everything itself."""
    world: World = ALONE
    """The processes that carry out the task together."""

    @property
    def settings(self) -> Settings:
        """The configuration in PyTorch's terms."""
        return Settings(self.config)

    def setup(self, dataset: Dataset[Any], seed: int) -> TrainingSetup:
        """Build a training loop under the job's configuration; see `apply`."""
        job = self.job
        setup = apply(self.config, self.workload, job.device, seed, dataset, self.world)
        scale_learning_rates(setup.optimizer, job.lr_factor)
        return setup


def prepare(
    job: Job, folder: TrialFolder, process_start: float, prepared: Prepared | None = None
) -> LoadedJob:
    """Import the workload, unless the host did, then apply the process-wide settings.

    One of several processes then meets the others.

    `process_start` is the parent's monotonic clock when it launched this process, in seconds.

    Raises:
        WorkloadError: model.py does not keep to the contract.
        Exception: whatever model.py raises.
    """
    assert job.model_path is not None
    assert job.config is not None
    config = TrainingConfig.of(job.config)
    workload = prepared.take_over() if prepared else load_workload(Path(job.model_path))
    # After the import, so that the trial's settings replace those that the file makes.
    Settings(config).apply_to_process()
    if job.processes > 1:
        job = replace(job, device=device_of_rank(job.device))
    use_device(torch.device(job.device))
    memory.limit_device_memory(torch.device(job.device), job.memory_limit_bytes)
    world = join(job.processes, torch.device(job.device), job.deadline_seconds)
    start_seconds = time.monotonic() - process_start
    if prepared:
        start_seconds += prepared.import_seconds
    workload = workload.under(job.config)
    return LoadedJob(job, folder, workload, config, start_seconds, prepared, world)


def use_device(device: torch.device) -> None:
    """Make an accelerator the current one: `.cuda()` in the user's code means it then."""
    if device.type != "cpu" and device.index is not None:
        torch.accelerator.set_device_index(device.index)


def measure(loaded: LoadedJob, plan: MeasurePlan) -> outcomes.TrialOutcome:
    """Train for a short while and time it; return `NotApplied` if a setting did not take effect."""
    loaded.folder.enter_phase("build")
    compiler, prepared, job = CompileClock(), loaded.prepared, loaded.job
    start = time.perf_counter()
    setup = loaded.setup(build_dataset(loaded.workload), job.seed)
    build_seconds = max(0.0, time.perf_counter() - start - compiler.seconds)
    setup.model.train()
    step, wait = _WatchedStep(setup), partial(synchronize, setup.device)
    ahead = partial(setup.settings.copied_ahead, device=setup.device)
    batches = Batches(setup.loader, time.perf_counter, wait, ahead, setup.batches_per_step)
    training = TimedTraining(
        batches,
        setup.device,
        setup.world,
        loaded.folder,
        compiler,
        fault=partial(_fault, step, batches),
        take_worst=partial(_take_worst_batch, setup, step),
    )
    found = drive(training.measuring(plan), partial(step, batches))
    if not isinstance(found, Measurement):
        return found
    tokens = count_tokens(setup.loader, loaded.workload.tokens_in) if job.count_tokens else None
    return outcomes.Measured(
        replace(
            found,
            start_seconds=loaded.start_seconds,
            build_seconds=build_seconds + (prepared.dataset_seconds if prepared else 0.0),
            token_count=tokens,
            shared_seconds=prepared.seconds if prepared else 0.0,
        )
    )


def _fault(step: _WatchedStep, batches: Batches) -> outcomes.Failure | None:
    """Return why a timing does not count for the configuration; None if it does."""
    loss = math.nan if step.loss is None else float(step.loss.detach())
    if not math.isfinite(loss):  # a parameter that has become NaN stays NaN
        return outcomes.NonFinite(f"the loss became {loss}")
    setup = step.setup
    for name, wanted, got in setup.not_applied():
        return outcomes.NotApplied(name, spelled(wanted), spelled(got))
    if uneven := epochs_obstacle(setup.world.shares(batches.epoch_batches)):
        return outcomes.Rejected(f"{setup.workload.path}: {uneven}")
    return None


def _take_worst_batch(setup: TrainingSetup, step: _WatchedStep) -> LengthCount | None:
    """Take a step on the longest samples together, so that the peak memory has them.

    A compiled model is left out: it would be compiled again for the batch's shape.
    """
    found = worst_batch(setup.loader) if setup.config["compile_mode"] is None else None
    if not all(setup.world.shares(found is not None)):
        return None
    assert found is not None
    step(itertools.repeat(found.batch))
    synchronize(setup.device)
    return found.among


def probe(loaded: LoadedJob, task: Probe) -> outcomes.TrialOutcome:
    """Train a new model on a fixed number of samples for each seed and evaluate it."""
    start = time.perf_counter()
    loaded.folder.enter_phase("build")
    data = quality.probe_data(loaded.workload)
    untrained = None
    if task.untrained:  # of a model of its own: evaluating one draws from its random numbers
        with suppress(quality.NonFiniteLossError):
            untrained = _quality_of(loaded, data, replace(task, samples=0), task.seeds[0])
    # Each seed's model is gone before the next one is built.
    qualities = tuple(_quality_of(loaded, data, task, seed) for seed in task.seeds)
    return outcomes.Probed(qualities, time.perf_counter() - start, untrained)


def _quality_of(loaded: LoadedJob, data: quality.ProbeData, task: Probe, seed: int) -> float:
    loaded.folder.enter_phase("build")
    setup = loaded.setup(data.training, seed)
    return quality.probe(setup, data, task, loaded.folder.enter_phase)


@dataclass
class _WatchedStep:
    """A training step that keeps its loss, so that no step has to wait for a check."""

    setup: TrainingSetup
    loss: Tensor | None = field(default=None, init=False)

    def __call__(self, batches: Iterator[Any]) -> None:
        self.loss = self.setup.step(batches)
