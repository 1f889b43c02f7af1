"""Inspect the machine and the workload, the first task of every search."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from autotune.configuration.job import Inspect, Job
from autotune.configuration.training_config import TrainingConfig
from autotune.training import inspection, memory
from autotune.training.apply_settings import Settings
from autotune.training.before_fork import Prepared, with_dataset
from autotune.training.ranks.facts import comm_dtypes, graph_obstacle, unused_in, uses_in
from autotune.training.ranks.world import ALONE, World, device_of_rank, join
from autotune.training.tasks import use_device
from autotune.training.training_setup import build_model
from autotune.training.workload import Workload, load_workload
from autotune.values.errors import UsageError
from autotune.values.machine import Machine
from autotune.values.outcome import Inspected, RankFacts, TrialOutcome

# Samples of a batch, and steps, that show which parameters are used; BatchNorm needs two samples.
_SMALL = 2
_STEPS = 5


def inspect(job: Job, prepared: Prepared | None = None) -> TrialOutcome:
    """Describe the machine and, if the job names one, the workload.

    The workload is imported before a device is asked for, because it may choose those that CUDA
    sees.
    """
    assert isinstance(job.task, Inspect)
    if job.task.visible_devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = job.task.visible_devices
    if prepared:
        torch.set_num_threads(prepared.default_threads)
        found = _described(job)
        if job.model_path is None:
            return found
        workload = prepared.take_over().as_today(job.task.baseline)
        facts = inspection.describe_workload(workload, prepared.own_settings)
        return replace(
            found,
            workload=facts,
            import_seconds=prepared.import_seconds,
            dataset_seconds=prepared.dataset_seconds,
            is_shared=True,
        )
    if job.model_path is None:
        return _described(job)
    before, start = inspection.process_settings(), time.perf_counter()
    workload = load_workload(Path(job.model_path)).as_today(job.task.baseline)
    after, import_seconds = inspection.process_settings(), time.perf_counter() - start
    own = {name: value for name, value in after.items() if value != before[name]}
    torch.set_num_threads(int(before["num_threads"] or 1))
    found = _described(job)
    torch.set_num_threads(int(after["num_threads"] or 1))
    world, rank_uuids = _met(job, found.machine)
    workload, dataset_seconds = with_dataset(workload)
    facts = world.on_first(partial(inspection.describe_workload, workload, own))
    if not world.is_alone:
        device = torch.device(device_of_rank(found.machine.device))
        facts = replace(facts, ranks=_observed_together(workload, world, device))
    return replace(
        found,
        workload=facts,
        import_seconds=import_seconds,
        dataset_seconds=dataset_seconds,
        processes=world.size,
        rank_uuids=rank_uuids,
    )


def _observed_together(workload: Workload, world: World, device: torch.device) -> RankFacts:
    """Return what some small steps in each process show, and what the backend can add up.

    A step that fails shows nothing; the baseline reports why.
    """
    model = build_model(workload).to(device).train()
    steps, failed = list[dict[str, int]](), ""
    try:
        steps = uses_in(model, _small_losses(workload, model, device))
    except Exception as error:
        failed = f"a step of {_SMALL} samples failed: {type(error).__name__}"
    failures = [f"{one} (rank {rank})" for rank, one in enumerate(world.shares(failed)) if one]
    of_all = [uses for shared in world.shares(steps) for uses in shared]
    return RankFacts(
        comm_dtypes=comm_dtypes(device),
        has_buffers=any(True for _ in model.buffers()),
        graph_obstacle=failures[0] if failures else graph_obstacle(of_all),
        unused=() if failures or not of_all else unused_in(of_all),
    )


def _small_losses(workload: Workload, model: nn.Module, device: torch.device) -> Iterator[Tensor]:
    """Yield the losses of a few small batches of the training set, each as it is asked for."""
    plain = Settings(TrainingConfig.of({}))
    dataset = workload.build_dataset()
    stream = isinstance(dataset, IterableDataset)
    loader = DataLoader(dataset, _SMALL, shuffle=not stream, collate_fn=workload.collate_fn)
    for batch in islice(loader, _STEPS):
        yield workload.compute_loss(model, plain.transfer(batch, device))


def _met(job: Job, machine: Machine) -> tuple[World, tuple[str, ...]]:
    """Return the processes of the job, once all are here, each on its device, and their UUIDs.

    Raises:
        UsageError: there are fewer devices or cores.
    """
    processes = job.processes or int(os.environ["WORLD_SIZE"])
    if processes == 1:
        return ALONE, ()
    if not job.launch:
        _check_room(processes, machine, job)
    device = torch.device(device_of_rank(machine.device))
    use_device(device)
    world = join(processes, device, job.deadline_seconds)
    _check_room(processes, machine, job)
    if not machine.has_accelerator:
        return world, ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    part = visible if "MIG-" in visible.upper() else ""  # of a GPU, whose UUID may be the whole's
    shared = world.shares((inspection.device_uuid(str(device)), part))
    for (uuid, _), count in Counter(shared).items():
        if uuid and count > 1:
            raise UsageError(
                f"{count} processes would train on one device ({device}). Let the launcher give "
                "each its own, or start fewer."
            )
    return world, tuple(uuid for uuid, _ in shared)


def _check_room(processes: int, machine: Machine, job: Job) -> None:
    """Check that there is a device or a core for each process.

    Raises:
        UsageError: there are fewer.
    """
    room, kind = machine.host.usable_cores, "cores"
    if machine.has_accelerator:
        room, kind = torch.accelerator.device_count(), machine.device_type
        # A launcher may let each process see only one accelerator.
        if job.launch and room == 1:
            return
    if processes <= room:
        return
    if job.launch:
        raise UsageError(
            f"--launcher starts {processes} processes, and there are {room} ({kind}) here. Start "
            "fewer."
        )
    raise UsageError(f"--nproc-per-node {processes}: there are {room} ({kind}) here. Give fewer.")


def _described(job: Job) -> Inspected:
    """Return the facts on the machine with the device that is wanted.

    Raises:
        UsageError: there is no such device, or not one for each process of a script.
    """
    assert isinstance(job.task, Inspect)
    machine = inspection.describe_machine(inspection.resolve_device(job.device))
    uuid = inspection.device_uuid(machine.device)
    held = memory.device_memory(torch.device(machine.device))
    free = None if held is None else held.free
    return Inspected(machine, None, uuid, _uuids_of_script(job, machine), device_free_bytes=free)


def _uuids_of_script(job: Job, machine: Machine) -> tuple[str, ...]:
    """Return the UUIDs of the accelerators that the processes of a script take, by their numbers.

    Raises:
        UsageError: there are fewer devices than processes.
    """
    assert isinstance(job.task, Inspect)
    count = job.task.processes
    if count == 1:
        return ()
    _check_room(count, machine, job)
    if not machine.has_accelerator:
        return ()
    seen = min(count, torch.accelerator.device_count())
    names = (f"{machine.device_type}:{number}" for number in range(seen))
    return tuple(map(inspection.device_uuid, names))
