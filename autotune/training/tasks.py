"""The tasks that a child carries out on a model.py, one function each.

Where samples differ in length and a batch is padded, memory follows the longest sample of a batch.
The timed batches may hold none of the longest. Production meets them in every epoch. So a
measurement takes a step on the longest, too.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from heapq import nlargest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from autotune.configuration.job import Job, MeasurePlan, Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import spelled
from autotune.process.common.trial_folder import TrialFolder
from autotune.training import memory, quality, training_setup
from autotune.training.apply_settings import Settings
from autotune.training.batches import Batches
from autotune.training.before_fork import Prepared
from autotune.training.ranks import ALONE, World, device_of_rank, epochs_obstacle, join
from autotune.training.timing import CompileClock, TimedTraining, drive, synchronize
from autotune.training.workload import Workload, load_workload
from autotune.values import outcome as outcomes
from autotune.values.measurement import LengthCount, Measurement
from autotune.values.statistics import Reached

_MOST_SAMPLES = 100_000
# Seconds of reading: in all, and while all samples were equally long.
_MOST_SECONDS, _EQUAL_SECONDS = 0.5, 0.1


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

    def setup(self, dataset: Dataset[Any], seed: int) -> training_setup.TrainingSetup:
        """Build a training loop under the job's configuration; see `apply`."""
        job = self.job
        setup = training_setup.apply(
            self.config, self.workload, job.device, seed, dataset, self.world
        )
        training_setup.scale_learning_rates(setup.optimizer, job.lr_factor)
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
    setup = loaded.setup(training_setup.build_dataset(loaded.workload), job.seed)
    build_seconds = max(0.0, time.perf_counter() - start - compiler.seconds)
    setup.model.train()
    wait = partial(synchronize, setup.device)
    batches = Batches(setup.loader, time.perf_counter, wait, setup.batches_per_step)
    training = TimedTraining(
        batches,
        setup.device,
        setup.world,
        loaded.folder,
        compiler,
        fault=partial(_fault, setup, batches),
        take_worst=partial(_take_worst_batch, setup),
    )
    found = drive(training.measuring(plan), partial(setup.step, batches))
    if not isinstance(found, Measurement):
        return found
    return outcomes.Measured(
        replace(
            found,
            start_seconds=loaded.start_seconds,
            build_seconds=build_seconds + (prepared.dataset_seconds if prepared else 0.0),
            shared_seconds=prepared.seconds if prepared else 0.0,
        )
    )


def _fault(setup: training_setup.TrainingSetup, batches: Batches) -> outcomes.Failure | None:
    """Return why a timing does not count for the configuration; None if it does."""
    loss = float(setup.loss)
    if not math.isfinite(loss):  # a parameter that has become NaN stays NaN
        return outcomes.NonFinite(f"the loss became {loss}")
    for name, wanted, got in setup.not_applied():
        return outcomes.NotApplied(name, spelled(wanted), spelled(got))
    if uneven := epochs_obstacle(setup.world.shares(batches.epoch_batches)):
        return outcomes.Rejected(f"{setup.workload.path}: {uneven}")
    return None


def _take_worst_batch(setup: training_setup.TrainingSetup) -> LengthCount | None:
    """Take a step on the longest samples together, so that the peak memory has them.

    A compiled model is left out: it would be compiled again for the batch's shape.
    """
    found = worst_batch(setup.loader) if setup.config["compile_mode"] is None else None
    if not all(setup.world.shares(found is not None)):
        return None
    assert found is not None
    batch, among = found
    setup.step(itertools.repeat(batch))
    synchronize(setup.device)
    return among


def probe(loaded: LoadedJob, task: Probe) -> outcomes.TrialOutcome:
    """Train a new model on a fixed number of samples for each seed and evaluate it."""
    start = time.perf_counter()
    loaded.folder.enter_phase("build")
    data = quality.probe_data(loaded.workload)
    untrained = None
    if task.untrained:  # of a model of its own: evaluating one draws from its random numbers
        with suppress(quality.NonFiniteLossError):
            before = replace(task, samples=0, most=0)
            untrained, _ = _trained(loaded, data, before, task.seeds[0])
    # Each seed's model is gone before the next one is built.
    qualities, reached = zip(*(_trained(loaded, data, task, n) for n in task.seeds), strict=True)
    told = tuple(filter(None, reached))
    return outcomes.Probed(qualities, time.perf_counter() - start, untrained, told)


def _trained(
    loaded: LoadedJob, data: tuple[Dataset[Any], quality.HeldOut], task: Probe, seed: int
) -> tuple[float, Reached | None]:
    loaded.folder.enter_phase("build")
    training, held_out = data
    setup = loaded.setup(training, seed)
    return quality.probe(setup, held_out, task, loaded.folder.enter_phase)


def worst_batch(
    loader: DataLoader[Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[Any, LengthCount] | None:
    """Return a batch of the longest samples of a loader's dataset, and among how many they are.

    None if they are equally long, if their lengths are unknown, or for a stream. The dataset's
    attribute `lengths` has all of them. Else samples are read in random order, for half a second
    and 100,000 at most. If fewer than a batch were read, the longest are repeated.
    """
    size = loader.batch_size
    if size is None or isinstance(loader.dataset, IterableDataset):
        return None
    try:
        lengths = _told(loader.dataset) or _read(loader.dataset, clock)
        # A list of all is not copied: it may be large, and memory is about to be measured.
        numbers = lengths if isinstance(lengths, dict) else range(len(lengths))
        chosen = nlargest(size, numbers, key=lengths.__getitem__)
        if not chosen or lengths[chosen[0]] == min(lengths[number] for number in numbers):
            return None
        read = [loader.dataset[number] for number in chosen]
        # A collate_fn may change what it is given.
        samples = [copy(read[n % len(read)]) for n in range(size)]
        among = LengthCount(len(lengths), len(loader.dataset))  # type: ignore[arg-type]
        return loader.collate_fn(samples), among
    except Exception:  # the user's code; what is lost is one look at the memory
        return None


def _told(dataset: Any) -> Sequence[float]:
    """Return the length of each sample as the dataset gives it; empty if it does not."""
    if isinstance(dataset, Subset):
        known = _told(dataset.dataset)
        return [known[index] for index in dataset.indices] if known else ()
    lengths = getattr(dataset, "lengths", None)
    if lengths is None or callable(lengths) or len(lengths) != len(dataset):
        return ()
    told: Sequence[float] = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    return told


def _read(dataset: Any, clock: Callable[[], float]) -> dict[int, int]:
    """Return the lengths of samples in random order; empty if one is unknown."""
    start, lengths, differ = clock(), dict[int, int](), set[int]()
    count, random = len(dataset), torch.Generator().manual_seed(0)
    if count > _MOST_SAMPLES:
        order = torch.randint(count, (_MOST_SAMPLES,), generator=random)
    else:
        order = torch.randperm(count, generator=random)
    for number in order.tolist():
        length = sample_length(dataset[number])
        if length is None:
            return {}
        lengths[number] = length
        differ.add(length)
        most = _EQUAL_SECONDS if len(differ) == 1 else _MOST_SECONDS
        if len(lengths) > 1 and clock() - start > most:
            break
    return lengths


def sample_length(sample: Any) -> int | None:
    """Return the number of elements of a sample's first tensor, array or list of numbers.

    Of a dictionary all count together: the first may be a label.
    """
    match sample:
        case Tensor():
            return sample.numel()
        case Mapping():
            known = [length for it in sample.values() if (length := sample_length(it)) is not None]
            return sum(known) if known else None
        case list() if not sample:
            return 0
        case [int() | float(), *_]:
            return len(sample)
        case tuple() | list() if sample:
            return sample_length(sample[0])
        case _:
            size = getattr(sample, "size", None)  # NumPy's
            return size if isinstance(size, int) else None
