"""Who else uses a GPU: asked before anything is measured, when nothing of ours computes there."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psutil

from autotune.text import size


def neighbours(uuid: str, nvml: Any = None) -> list[str]:
    """The processes that compute on a GPU, in words; none where NVML is missing or does not tell.

    Args:
        uuid: as torch tells it; empty for what is no GPU of NVIDIA's.
        nvml: the library; else pynvml.
    """
    if not uuid:
        return []
    try:
        nvml = nvml or _pynvml()
        nvml.nvmlInit()
    except Exception:  # not installed, no driver, or another one than the library's
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
    """What to tell a person of them."""
    return (
        f"{device} is used by others: {', '.join(others)}. What is timed beside them is slower, "
        "and memory that they hold is missing. End them, or choose another device."
    )


def _pynvml() -> Any:
    import pynvml

    return pynvml


def _named(process: Any) -> str:
    name = "process"
    with suppress(psutil.Error):  # of another container: it has no number here
        name = psutil.Process(process.pid).name()
    held = process.usedGpuMemory
    return f"{name} ({process.pid}{f', {size(held)}' if held else ''})"
