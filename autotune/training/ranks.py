"""The processes that train together: their meeting and their messages.

Those of a model.py meet here, a script's by themselves. Rank 0 decides: it tells the others how
many steps a block has, and when a timing ends. Messages have a group of their own (gloo), apart
from the gradients. A process that trains alone is a world of one, in which nothing is sent.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from autotune.knobs.ranks import COMM_DTYPE
from autotune.process.common.imports import replace
from autotune.values.errors import UsageError

Told = TypeVar("Told")
# Relative; a mean of a few numbers of equal size is rounded by less in bfloat16.
_ROUNDING = 0.05


@dataclass(frozen=True, slots=True)
class Lap:
    """Consecutive steps between two synchronisations, of one process or of all together."""

    seconds: float
    """Seconds without epoch boundaries."""
    steps: int
    """Steps of one process, or of all together."""
    wait_seconds: float
    """Part of `seconds` in which the loop waited for the DataLoader."""
    launched_seconds: float = 0.0
    """Seconds until the last step had returned, the device perhaps still at work."""
    ended: float = 0.0
    """The clock at its end."""
    boundary_seconds: float = 0.0
    """Seconds of the epoch boundaries within."""
    has_boundary: bool = False
    stock: float = 0
    """Steps on prefetched batches; see `Block.stock_samples`."""
    compilations: int = 0
    """Compilations that began, plus those that ended."""
    stopped: int = 0
    """Times that a process other than rank 0 was stopped and continued."""
    gpu: str = ""
    """Disturbances of the GPUs of processes other than rank 0."""


def slowest(laps: Sequence[Lap]) -> Lap:
    """Return the lap of several processes together: the slowest one's time, the steps of all.

    All reach the end of an epoch in the same step. The slowest boundary is left out of the slowest
    time, because the others wait for it.
    """
    boundary = max(lap.boundary_seconds for lap in laps)
    whole = max(lap.seconds + lap.boundary_seconds for lap in laps)
    return Lap(
        seconds=whole - boundary,
        steps=sum(lap.steps for lap in laps),
        wait_seconds=max(lap.wait_seconds for lap in laps),
        boundary_seconds=boundary,
        has_boundary=any(lap.has_boundary for lap in laps),
        stock=sum(lap.stock for lap in laps),
        compilations=sum(lap.compilations for lap in laps),
        stopped=sum(lap.stopped for lap in laps),
        gpu=", ".join(dict.fromkeys(lap.gpu for lap in laps if lap.gpu)),
    )


@dataclass(frozen=True)
class World:
    """The processes that train together, as one of them sees them."""

    rank: int = 0
    size: int = 1
    control: Any = None
    """Process group for their messages; None for a single process."""

    @property
    def is_alone(self) -> bool:
        """True if this process trains alone."""
        return self.control is None

    @property
    def launcher(self) -> int | None:
        """PID of the process that started all ranks; None alone."""
        return None if self.is_alone else os.getppid()

    def shares(self, own: Told) -> list[Told]:
        """Return what each process has, by rank; every process has to call it."""
        if self.is_alone:
            return [own]
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, own, group=self.control)
        return found

    def told(self, own: Told) -> Told:
        """Return what rank 0 has; every process has to call it."""
        if self.is_alone:
            return own
        box = [own]
        distributed.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def begins(self, steps: int = 0) -> int:
        """Return the steps that rank 0 has all processes take, 0 for no more, when all begin."""
        steps = self.told(steps)
        if not self.is_alone:
            distributed.barrier(group=self.control)
        return steps

    def on_first(self, action: Callable[[], Told]) -> Told:
        """Return the result of `action` on rank 0; only it calls it, and the others wait."""
        return self.told(action() if self.rank == 0 else None)  # type: ignore[return-value]


ALONE = World()


def device_of_rank(device: str) -> str:
    """Return the device of this process: one accelerator for each rank on this host, or the CPU.

    A launcher may let each process see only its own.

    Raises:
        UsageError: there are fewer devices than processes.
    """
    kind, count = torch.device(device).type, torch.accelerator.device_count()
    if kind == "cpu":
        return device
    own = int(os.environ["LOCAL_RANK"]) if count > 1 else 0
    if own >= count:
        raise UsageError(
            f"process {own} has no device: there are {count} ({kind}). Start fewer processes, by "
            "--nproc-per-node or the launcher's own option."
        )
    return f"{kind}:{own}"


def join(processes: int, device: torch.device, deadline_seconds: float) -> World:
    """Meet the other processes of a trial, which a launcher started as well.

    Raises:
        ValueError: no launcher started this process: torch finds no variable of it.
    """
    if processes == 1:
        return ALONE
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(seconds=deadline_seconds))
    return joined(deadline_seconds)


def obstacle(started: int) -> str:
    """Return why the processes of a script cannot be timed together; "" if they can.

    Args:
        started: the processes that were started, each with the script.
    """
    size = 1 if (group := _size()) is None else group
    if size == started:
        return ""
    if group is None:
        return (
            f"it was started in {started} processes, and each trains by itself: nothing calls "
            "torch.distributed.init_process_group. Let the script initialise the process group, or "
            "search it in one process"
        )
    if started > 1:
        return f"it was started in {started} processes, and its process group has {size}"
    return (
        f"it trains in {size} processes that it starts itself. Let a launcher such as torchrun "
        f"start them, and give --nproc-per-node {size}"
    )


def joined(patience_seconds: float) -> World:
    """Return the processes that have joined this one; every one of them has to call it."""
    if (_size() or 1) == 1:
        return ALONE
    patience = timedelta(seconds=patience_seconds)
    control = distributed.new_group(backend="gloo", timeout=patience)
    return World(distributed.get_rank(), distributed.get_world_size(), control)


def before_parting(last: Callable[[], None]) -> None:
    """Call `last` before the script destroys its process group, and with it ours.

    Side effect: patches `torch.distributed.destroy_process_group` for the process.
    """

    def parting(original: Callable[[Any], None], group: Any = None) -> None:
        if group in (None, distributed.GroupMember.WORLD):
            last()
        original(group)

    for holder in (distributed, distributed.distributed_c10d):
        replace(holder, "destroy_process_group", parting)


def _size() -> int | None:
    """Return the processes of the script's process group; None without one."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_world_size()


def comm_dtypes(device: torch.device) -> tuple[str, ...]:
    """Return the formats in which torch's compression hooks average gradients on this backend.

    Each is tried with a real exchange, so every process of the default group has to call it.
    """
    offered = (str(value) for value in COMM_DTYPE.values.options if value is not None)
    return tuple(name for name in offered if _averages(name, device))


def _averages(name: str, device: torch.device) -> bool:
    model = nn.Linear(1, 1, bias=False, device=device)
    ddp = DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [device])
    try:
        COMM_DTYPE.on_ddp(name, ddp)
        # The gradient is the input: 1 on rank 0, 2 on rank 1.
        ddp(torch.full((1, 1), distributed.get_rank() + 1.0, device=device)).sum().backward()
        found = float(model.weight.grad)  # type: ignore[arg-type]
    except (RuntimeError, TypeError, ValueError):
        return False
    return math.isclose(found, (distributed.get_world_size() + 1) / 2, rel_tol=_ROUNDING)


def epochs_obstacle(batches: Sequence[int | None]) -> str:
    """Return which processes have fewer batches in an epoch than others; "" if all have as many.

    In the user's own loop the others would wait for them forever. The batches are those of the
    last epoch that ended, by rank; None if none did in as many steps.
    """
    if len(set(batches)) == 1:
        return ""
    fewest = min(count for count in batches if count is not None)
    short = " and ".join(f"rank {rank}" for rank, count in enumerate(batches) if count == fewest)
    told = ", ".join(f"rank {n}: {'more' if c is None else c}" for n, c in enumerate(batches))
    return (
        f"{short} has fewer batches in an epoch than others ({told}), which would wait forever. "
        "Give each process equally many samples"
    )
