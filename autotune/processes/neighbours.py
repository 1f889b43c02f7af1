"""Find other processes on a GPU; ask before measuring, while no trial of this search runs on it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psutil

from autotune.values.machine import LIMITED
from autotune.values.text import size

# A driver holds less of an idle GPU, and a desktop uses less of it.
_IDLE_BYTES, _IDLE_PERCENT = 1 << 30, 10


def neighbours(uuid: str, nvml: Any = None, *, after_trials: bool = False) -> list[str]:
    """Describe the processes that compute on a GPU; return none if NVML is missing or fails.

    Args:
        uuid: UUID of the GPU from torch; empty for other devices.
        nvml: the NVML library; pynvml if None.
        after_trials: True if trials have just ended, whose work NVML's utilisation still counts.
    """
    if not uuid:
        return []
    try:
        nvml = nvml or _pynvml()
        nvml.nvmlInit()
    except Exception:  # not installed, no driver, or a driver of another version
        return []
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
        named = [_named(process) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        return named or _unnamed(nvml, handle, after_trials=after_trials)
    except nvml.NVMLError:
        return []
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _unnamed(nvml: Any, handle: Any, *, after_trials: bool) -> list[str]:
    """Describe users of a GPU that NVML does not list, as in a container, by what they take."""
    used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    busy = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    if used < _IDLE_BYTES and (busy < _IDLE_PERCENT or after_trials):
        return []
    return [f"processes that NVML does not list ({size(used)} in use, {busy} % busy)"]


def unlimited_line(device: str) -> str:
    """Return the warning that PyTorch cannot limit a device's memory; "" where it can."""
    if device.partition(":")[0] in LIMITED:
        return ""
    return (
        f"{device}: PyTorch cannot limit the memory of this device. A trial over the limit is "
        "known by its peak alone, and may take memory from other programs until then."
    )


def crowded_line(device: str, free_bytes: int | None, limit_bytes: int) -> str:
    """Return the warning that less memory is free than trials may use; "" if that is not so."""
    if free_bytes is None or free_bytes >= limit_bytes:
        return ""
    return (
        f"{device}: {size(free_bytes)} of its memory is free, and a trial may use "
        f"{size(limit_bytes)}. Configurations between the two fail here for lack of memory. Free "
        f"the rest, or give --memory-limit."
    )


def shared_line(device: str, others: list[str]) -> str:
    """Return the warning about other processes on a device."""
    return (
        f"{device} is used by others: {', '.join(others)}. What is timed beside them is slower, "
        "and memory that they hold is missing. End them, or choose another device."
    )


def _pynvml() -> Any:
    import pynvml

    return pynvml


def _named(process: Any) -> str:
    name = "process"
    with suppress(psutil.Error):  # a process of another container has no number here
        name = psutil.Process(process.pid).name()
    held = process.usedGpuMemory
    return f"{name} ({process.pid}{f', {size(held)}' if held else ''})"
