"""What disturbs a timing: other processes, the hypervisor, a stopped process, a throttled GPU.

CPU time of the whole machine, less the trial's own, is what others used. Pressure alone would not
do: a trial with more threads than cores puts itself under pressure.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch

from autotune.machine import probe_host
from autotune.measurement import Noise

_TICKS = os.sysconf("SC_CLK_TCK")
# The machine's own counters round to ticks, core by core.
_COARSE = 2
# Columns of /proc/stat after the name of the core: see proc(5).
_USER, _IDLE, _IOWAIT, _STEAL = 0, 3, 4, 7
_GUEST = 8  # this column and the next are part of user and nice already


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds since boot or start, of the cores that this process may use."""

    wall: float
    busy: float
    stolen: float
    own: float
    pressure: float
    """Seconds in which some process waited for a core."""


class NoiseWatch:
    """Says what disturbed the machine between one call and the next."""

    def __init__(
        self, device: torch.device, clock: Callable[[], float], read: Callable[[], CpuTimes | None]
    ) -> None:
        self._clock = clock
        self._read = read
        self._gpu = _gpu_watch(device)
        self._stops = 0
        self._last = read()
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGCONT, self._continued)

    def __call__(self) -> Noise:
        """The noise since the last call."""
        last, self._last = self._last, self._read()
        stopped, self._stops = self._stops, 0
        now = self._last
        if last is None or now is None or now.wall <= last.wall:
            return Noise(stopped=stopped, gpu=self._gpu(), watched=False)
        wall = now.wall - last.wall
        capacity = wall * len(own_cores())
        foreign = (now.busy - last.busy) - (now.own - last.own) - _COARSE / _TICKS
        return Noise(
            foreign=round(min(1.0, max(0.0, foreign / capacity)), 3),
            stolen=round((now.stolen - last.stolen) / capacity, 3),
            pressure=round((now.pressure - last.pressure) / wall, 3),
            stopped=stopped,
            gpu=self._gpu(),
        )

    def _continued(self, *_: object) -> None:
        self._stops += 1


def watch(device: torch.device, clock: Callable[[], float]) -> NoiseWatch:
    """A watch over this machine and the trial that calls it."""
    return NoiseWatch(device, clock, lambda: read_cpu_times(clock))


def read_cpu_times(clock: Callable[[], float]) -> CpuTimes | None:
    """The counters as they are now; None where nothing can be told from them.

    That is so off Linux, and under a CPU quota: a cgroup with a share of many cores is not
    disturbed by who uses the others. Nor would its throttled time tell: a trial with more threads
    than its quota has cores is throttled by itself.
    """
    if _has_quota():
        return None
    try:
        stat = Path("/proc/stat").read_text(encoding="ascii")
        rows = _core_rows(stat)
        busy = sum(sum(row[_USER:_GUEST]) - row[_IDLE] - row[_IOWAIT] for row in rows)
        stolen = sum(row[_STEAL] for row in rows)
        own = _own_seconds()
    except (OSError, ValueError, IndexError, psutil.Error):
        return None
    return CpuTimes(clock(), (busy - stolen) / _TICKS, stolen / _TICKS, own, _pressure())


@cache
def _has_quota() -> bool:
    return probe_host().quota_cores is not None


def own_cores() -> set[int]:
    """The cores that this process may be scheduled on."""
    return os.sched_getaffinity(0)


def _core_rows(stat: str) -> list[list[int]]:
    names = {f"cpu{core}" for core in own_cores()}
    fields = (line.split() for line in stat.splitlines())
    return [list(map(int, row)) for name, *row in fields if name in names]


def _own_seconds() -> float:
    """CPU seconds of this process and its children, the ended ones included."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = child.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _pressure() -> float:
    try:
        first = Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines()[0]
        return int(first.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0


def _gpu_watch(device: torch.device) -> Callable[[], str]:
    """Why the GPU is slower than it could be, or empty; always empty where NVML is missing."""
    if device.type != "cuda":
        return lambda: ""
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except Exception:  # no NVML, no such GPU in it, or a torch that does not tell the uuid
        return lambda: ""
    return lambda: _gpu_noise(pynvml, handle)


def _gpu_noise(nvml: Any, handle: Any) -> str:
    try:
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return ""
    slowing = {
        "thermal": nvml.nvmlClocksThrottleReasonSwThermalSlowdown
        | nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        "power": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    }
    found = [name for name, mask in slowing.items() if reasons & mask]
    # In a container processes have other numbers here than there: none of them is known then.
    known = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    numbers = {process.pid for process in processes}
    if numbers & known and numbers - known:
        found.append("other processes")
    return ", ".join(found)
