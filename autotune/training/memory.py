"""Memory as the child sees it: what the device allocator or the process held at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

# ru_maxrss counts kilobytes on Linux and bytes on macOS.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


_host_file_bytes = 0


def file_bytes() -> int:
    """Resident pages of this process that are files: the libraries it has touched; 0 off Linux."""
    return _status("RssFile") or 0


def _status(name: str) -> int | None:
    """A size that Linux tells of this process, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:")]
    return sizes[0] if sizes else None


def count_host(host_file_bytes: int) -> None:
    """Say that this process was forked, and what its host held of libraries.

    A fork starts without those pages; a training started afresh would hold them.
    """
    global _host_file_bytes  # noqa: PLW0603 - a process is forked once
    _host_file_bytes = host_file_bytes


def limit_device_memory(device: torch.device, limit_bytes: int | None) -> None:
    """Make the allocator fail at the limit, where production under that limit would fail."""
    if device.type == "cuda" and limit_bytes is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory held so far, warm-up included.

    On an accelerator what the allocator reserved, because that is what has to fit; on CPU the
    resident size of this process (the runner adds the workers).
    """
    if device.type == "cpu":
        # getrusage would count what the parent held when it started this process.
        own = _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        return own + max(0, _host_file_bytes - file_bytes())
    return torch.accelerator.max_memory_reserved(device)


def allocator_retries(device: torch.device) -> int:
    """Times the device allocator had to free its cache and try again."""
    if device.type == "cpu":
        return 0
    return int(torch.accelerator.memory_stats(device).get("num_alloc_retries", 0))


def peak_so_far(device: str) -> int | None:
    """`peak_memory_bytes` where it can still be asked for, after whatever went wrong."""
    try:
        return peak_memory_bytes(torch.device(device))
    except RuntimeError:
        return None
