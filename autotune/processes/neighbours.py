"""Find other processes on a GPU; ask before measuring, while no trial of this search runs on it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psutil

from autotune.values.text import size


def neighbours(uuid: str, nvml: Any = None) -> list[str]:
    """Describe the processes that compute on a GPU; return none if NVML is missing or fails.

    Args:
        uuid: UUID of the GPU from torch; empty for other devices.
        nvml: the NVML library; pynvml if None.
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
        return [_named(process) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except nvml.NVMLError:
        return []
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


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
