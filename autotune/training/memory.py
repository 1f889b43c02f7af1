"""Peak memory of the child, as its device allocator or Linux reports it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import torch

from autotune.process.common.process_tree import MemoryPeak, private_bytes
from autotune.training.ranks import World
from autotune.values.measurement import DeviceMemory

_host_file_bytes = 0
_host_pid: int | None = None


def file_bytes() -> int:
    """Return the bytes of this process's resident file pages, mostly libraries."""
    return _status("RssFile") or 0


def _status(name: str) -> int | None:
    """Return a size from /proc/self/status in bytes; None if it is not there."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    sizes = [int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:")]
    return sizes[0] if sizes else None


def count_host(host_file_bytes: int) -> None:
    """Record that this process was forked from a host with so many bytes of file pages.

    A fork starts without those pages, but a newly started training would have them resident.
    """
    global _host_file_bytes, _host_pid  # noqa: PLW0603 - a process is forked once
    _host_file_bytes = host_file_bytes
    _host_pid = os.getppid()


def limit_device_memory(device: torch.device, limit_bytes: int | None) -> None:
    """Make a GPU's allocator fail beyond `limit_bytes`, as production under it would."""
    if device.type == "cpu" or limit_bytes is None:
        return
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory of this process in bytes, warm-up included.

    On an accelerator it is the memory that the allocator reserved, because that has to fit. On CPU
    it is the resident size of this process (`PeakWatch` adds the workers).
    """
    if device.type == "cpu":
        # getrusage includes the parent's memory at the time it started this process.
        own = _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return own + max(0, _host_file_bytes - file_bytes())
    return torch.accelerator.max_memory_reserved(device)


class PeakWatch:
    """A recorder of the peak memory of this process and its workers, read between timed blocks.

    On an accelerator it does nothing until it is asked, because the allocator records the peak.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._retries = 0
        self._private_bytes = 0
        self._peak = MemoryPeak(os.getpid(), _host_pid)

    def look(self) -> None:
        """Read the memory in use now and update the peak; does nothing on an accelerator."""
        if self._device.type == "cpu":
            below = self._peak.look()
            self._private_bytes = sum(map(private_bytes, (os.getpid(), *below)))

    def begin_blocks(self) -> None:
        """Leave out the allocator's retries so far: a search for the fastest kernel causes some."""
        self._retries = allocator_retries(self._device)

    @property
    def retries(self) -> int:
        """Retries of the device allocator since `begin_blocks`."""
        return allocator_retries(self._device) - self._retries

    @property
    def in_use(self) -> int | None:
        """Bytes in use at the last look: of tensors on an accelerator, else of all processes."""
        if self._device.type == "cpu":
            return self._private_bytes or None
        return torch.accelerator.memory_allocated(self._device)

    @property
    def bytes(self) -> int:
        """Peak memory so far in bytes; on CPU with the workers."""
        return max(peak_memory_bytes(self._device), self._peak.bytes)


def peak_of_all(world: World, device: torch.device, own_bytes: int) -> int:
    """Return the peak memory of processes that train together; every one has to call it.

    Each has an accelerator of its own, so the largest peak counts. On a CPU it is the sum; pages of
    files, which are the same libraries, count once.
    """
    if device.type != "cpu" or world.is_alone:
        return max(world.shares(own_bytes))
    shares = world.shares((own_bytes, file_bytes()))
    return sum(max(0, own - file) for own, file in shares) + max(file for _, file in shares)


def allocator_retries(device: torch.device) -> int:
    """Return how often the device allocator of this process freed its cache and tried again.

    The number counts from the start of the process; it is 0 on a CPU.
    """
    if device.type == "cpu":
        return 0
    return int(torch.accelerator.memory_stats(device).get("num_alloc_retries", 0))


def device_memory(device: torch.device) -> DeviceMemory | None:
    """Return the memory of an accelerator and what this process holds of it; None on a CPU."""
    if device.type == "cpu":
        return None
    free, total = torch.accelerator.get_memory_info(device)
    held = torch.accelerator.memory_reserved(device)
    return DeviceMemory(
        total=total,
        free=free,
        reserved=torch.accelerator.max_memory_reserved(device),
        allocated=torch.accelerator.max_memory_allocated(device),
        context=max(0, total - free - held),
    )


def peak_so_far(device: str) -> int | None:
    """Return `peak_memory_bytes`, or None if an error has left the device unusable."""
    try:
        return peak_memory_bytes(torch.device(device))
    except RuntimeError:
        return None
