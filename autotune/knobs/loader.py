"""Knobs of the DataLoader: making batches and moving them to the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.knobs.base import Integers, Knob, OneOf, Setup, Value, powers_of_two
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts

_DATA_LOADER = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader"


class _LoaderKnob(Knob):
    """A knob whose name is an argument of DataLoader, and an attribute of what that makes."""

    def loader_kwargs(self, value: Value) -> Mapping[str, Any]:
        return {self.name: value}

    def read_back(self, setup: Setup) -> Value:
        return getattr(setup.loader, self.name)  # type: ignore[no-any-return]


class BatchSize(_LoaderKnob):
    """Samples per training step."""

    name = "batch_size"
    default = 32
    values = Integers(1, 1 << 20)
    effect = "statistics"
    summary = "Samples per training step and device."
    pays = "Almost always until the device is busy: one launch and one update serve more samples."
    hurts = "Takes memory in proportion, and fewer updates per epoch can cost accuracy."
    call = "DataLoader(batch_size=...)"
    source = "https://github.com/google-research/tuning_playbook#choosing-the-batch-size"

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        return powers_of_two(8, 1024)

    def exclusion(self, value: Value, facts: WorkloadFacts) -> str | None:
        samples = facts.dataset_samples
        if samples is None or not isinstance(value, int) or value <= samples:
            return None
        return f"the dataset has {samples} samples"


class NumWorkers(_LoaderKnob):
    """Processes that load batches ahead of the training loop."""

    name = "num_workers"
    default = 0
    values = Integers(0, 256)
    summary = "Processes that load batches ahead; 0 loads in the training process itself."
    pays = "When reading, decoding or augmenting a batch takes a sizeable part of a step."
    hurts = (
        "Cheap datasets (the copy between processes costs more); few cores; little /dev/shm. An "
        "`IterableDataset` keeps its number: each worker might give all samples. Each worker draws "
        "its own random numbers, so that augmentations differ from those of another number of "
        "workers."
    )
    call = "DataLoader(num_workers=...)"
    source = _DATA_LOADER

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        cores = machine.host.usable_cores
        return tuple(sorted({0, *powers_of_two(1, min(cores, 16)), min(cores, 16)}))

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        most = 2 * machine.host.usable_cores
        if isinstance(value, int) and value > most:
            return f"at most {most} make sense with {most // 2} usable cores"
        return None

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        return facts.workers_obstacle or None


class PrefetchFactor(_LoaderKnob):
    """Batches that each worker prepares in advance."""

    name = "prefetch_factor"
    default = 2
    values = Integers(1, 64, nullable=True)
    needs = "num_workers"
    summary = "Batches that each worker keeps ready."
    pays = "When the time to load one batch varies: a longer queue smooths it out."
    hurts = "Memory: workers x prefetch_factor batches lie in /dev/shm. Never raises the mean rate."
    call = "DataLoader(prefetch_factor=...)"
    source = _DATA_LOADER

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        return (2, 4, 8)

    def resolve(self, value: Value, machine: Machine) -> Value:
        return self.default if value is None else value


class PersistentWorkers(_LoaderKnob):
    """Workers that live on from one epoch to the next."""

    name = "persistent_workers"
    default = False
    values = OneOf((False, True))
    needs = "num_workers"
    idle = False
    summary = "Keep the worker processes alive from one epoch to the next."
    pays = "Short epochs and datasets that are slow to open: workers are not restarted."
    hurts = "Workers keep their memory; a dataset changed in the main process is not seen."
    call = "DataLoader(persistent_workers=...)"
    source = _DATA_LOADER


class PinMemory(_LoaderKnob):
    """Batches in page-locked memory, copied asynchronously."""

    name = "pin_memory"
    default = False
    values = OneOf((False, True))
    summary = "Page-locked host memory for batches, copied to the device with non_blocking=True."
    pays = (
        "When copying a batch takes a visible part of a step: Python goes on while it is copied. "
        "Kernels still wait for the copy, which is on their stream."
    )
    hurts = "Costs a thread and locked memory; pointless for small batches."
    call = "DataLoader(pin_memory=...) and Tensor.to(device, non_blocking=...)"
    source = "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html"

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value and not machine.has_accelerator:
            return "there is no accelerator to copy to"
        return None

    def transfer_kwargs(self, value: Value, dimensions: int) -> Mapping[str, Any]:
        return {"non_blocking": True} if value else {}


class InOrder(_LoaderKnob):
    """Order in which the batches of several workers are given."""

    name = "in_order"
    default = True
    values = OneOf((True, False))
    # The same batches, but which comes first depends on timing, and differs from run to run.
    effect = "statistics"
    needs = "num_workers"
    idle = True
    summary = "Return batches in the sampler's order; false returns each as soon as it is ready."
    pays = "Samples that take very different times to load: no batch waits for a slower one."
    hurts = (
        "Runs cannot be repeated exactly. If loading times depend on the kind of sample, quick "
        "kinds come first in each epoch."
    )
    call = "DataLoader(in_order=...)"
    source = _DATA_LOADER

    def nondeterminism(self, value: Value) -> str | None:
        return None if value else "the order of the batches depends on which worker finishes first"

    def loader_kwargs(self, value: Value) -> Mapping[str, Any]:
        return {} if value else {"in_order": False}


# num_workers comes before the knobs that need it.
LOADER_KNOBS: tuple[Knob, ...] = (
    BatchSize(),
    NumWorkers(),
    PrefetchFactor(),
    PersistentWorkers(),
    PinMemory(),
    InOrder(),
)
