"""Processes that train together meet: those of a model.py here, a script's by themselves.

What they tell each other goes through a group of its own, beside the one for gradients.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from autotune.training.ranks.world import ALONE, World

UNJOINED = (
    "it was started in {started} processes, and each trains by itself: nothing calls "
    "torch.distributed.init_process_group. Let the script join them, or search it in one process"
)
ANOTHER_SIZE = "it was started in {started} processes, and its process group has {size}"
STARTS_OTHERS = (
    "it trains in {size} processes that it starts itself. Let it leave that to a launcher, as under"
    " torchrun, and say how many: --nproc-per-node {size}"
)

_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}


def device_of_rank(device: str) -> str:
    """Return the device of this process: one accelerator for each rank on this host, or the CPU.

    A launcher may let each process see its own alone.
    """
    kind = torch.device(device).type
    if kind == "cpu":
        return device
    own = os.environ["LOCAL_RANK"] if torch.accelerator.device_count() > 1 else "0"
    return f"{kind}:{own}"


def join(processes: int, device: torch.device, deadline_seconds: float) -> World:
    """Meet the other processes of a trial, which a launcher started beside this one.

    Raises:
        RuntimeError: the launcher started another number of processes.
        KeyError: no launcher started this process: it has no variable WORLD_SIZE.
    """
    if processes == 1:
        return ALONE
    if (size := int(os.environ["WORLD_SIZE"])) != processes:
        raise RuntimeError(f"{processes} processes were asked for, and the launcher started {size}")
    backend = _BACKENDS.get(device.type, "gloo")
    distributed.init_process_group(backend, timeout=timedelta(seconds=deadline_seconds))
    return joined(deadline_seconds)


def obstacle(started: int) -> str:
    """Return why the processes of a script cannot be timed together; "" if they can.

    Args:
        started: the processes that were started, each with the script.
    """
    size = _size()
    if size is None or size == started == 1:
        return "" if started == 1 else UNJOINED.format(started=started)
    if size == started:
        return ""
    return (STARTS_OTHERS if started == 1 else ANOTHER_SIZE).format(started=started, size=size)


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
    original = distributed.destroy_process_group

    @functools.wraps(original)
    def destroy_process_group(group: Any = None) -> None:
        if group in (None, distributed.GroupMember.WORLD):
            last()
        original(group)

    holders: tuple[Any, ...] = (distributed, distributed.distributed_c10d)
    for holder in holders:
        holder.destroy_process_group = destroy_process_group


def _size() -> int | None:
    """Return the processes of the script's process group; None without one."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_world_size()
