"""The processes of a script: the script itself joins them, and this finds what it has joined.

What they tell each other goes through a group of its own, beside the script's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

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
    """Return the processes that the script has joined; every one of them has to call it."""
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
