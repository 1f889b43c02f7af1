"""Detect disturbances of a timing: other processes, the hypervisor, stops, a throttled GPU.

CPU time of other processes is the whole machine's less the trial's own. It counts only while idle
time is short, see `autotune.values.measurement.Noise.taken`. Under a CPU quota the same holds for
the cgroup: others in it use up its quota. Pressure (PSI) and throttling are no sign of others: a
trial with more threads than cores causes them, too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil
import torch

from autotune.process.common.process_tree import cpu_seconds_below
from autotune.values.machine import cpu_quota
from autotune.values.measurement import QUIET, Noise

_TICKS = os.sysconf("SC_CLK_TCK")
# Ticks of tolerance: the kernel's counters are rounded to ticks, core by core.
_COARSE = 2
# Columns of /proc/stat after the name of the core: see proc(5).
_USER, _IDLE, _IOWAIT, _STEAL = 0, 3, 4, 7
_GUEST = 8  # this column and the next are already counted in user and nice
_POWERCAP = Path("/sys/class/powercap")
_MICRO, _MILLI = 1e6, 1e3
_quota = cache(cpu_quota)


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Readings of counters, in seconds; `busy` and `stolen` of the cores this process may use."""

    wall: float
    """The clock's time."""
    busy: float
    """CPU time of all processes since boot."""
    stolen: float
    """CPU time that the hypervisor gave to other machines since boot."""
    own: float
    """CPU time of this process and its children."""
    quota_cores: float | None = None
    """CPU quota of this process's cgroup in cores; None without one."""
    quota_used: float = 0.0
    """CPU time of all processes in that cgroup since it was made."""


class NoiseWatch:
    """A callable that returns the noise on the machine since its last call."""

    def __init__(self, device: torch.device, read: Callable[[], CpuTimes | None]) -> None:
        self._read = read
        self._gpu: Callable[[], Noise] = lambda: QUIET
        self._joules = EnergyMeter(package_energy if device.type == "cpu" else lambda: None)
        if (gpu := _gpu_of(device)) is not None:
            self._gpu = partial(_gpu_noise, *gpu)
            self._joules = EnergyMeter(partial(gpu_energy, *gpu))
        self._stops = 0
        self._last = read()
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGCONT, self._continued)

    def __call__(self) -> Noise:
        """Return the noise since the last call; unwatched if no counter can be read."""
        joules = self._joules()  # first, so that nothing but the block has used them
        gpu = replace(self._gpu(), joules=joules)
        last, self._last = self._last, self._read()
        stopped, self._stops = self._stops, 0
        now = self._last
        if last is None or now is None or now.wall <= last.wall:
            return replace(gpu, stopped=stopped, watched=False)
        wall = now.wall - last.wall
        capacity = wall * len(own_cores())
        stolen = now.stolen - last.stolen
        # Stolen time is not idle. It counts as used by the trial, since no other process had it.
        busy, own = now.busy - last.busy, now.own - last.own
        shares = [_shares(busy + stolen, own + stolen, wall, capacity)]
        if now.quota_cores is not None:  # the same of the quota
            used = now.quota_used - last.quota_used
            shares.append(_shares(used, own, wall, wall * now.quota_cores))
        foreign, spare = max(shares, key=lambda it: Noise(foreign=it[0], spare=it[1]).taken)
        return replace(
            gpu,
            foreign=round(foreign, 3),
            stolen=round(stolen / capacity, 3),
            stopped=stopped,
            spare=round(spare, 3),
        )

    def _continued(self, *_: object) -> None:
        self._stops += 1


def _shares(used: float, own: float, wall: float, capacity: float) -> tuple[float, float]:
    """Return the share of `capacity` that others used, and the idle share beyond one core.

    All are CPU seconds: `used` by all processes, `own` by this one and its children, `capacity` in
    all; `wall` seconds passed.
    """
    foreign, spare = used - own - _COARSE / _TICKS, capacity - wall - used
    return min(1.0, max(0.0, foreign / capacity)), max(0.0, spare / capacity)


def watch(
    device: torch.device, clock: Callable[[], float], launcher: int | None = None
) -> Callable[[], Noise]:
    """Return a watch over this machine, `device` and the calling trial.

    All processes that `launcher` started are the trial's; None: this process and its children. The
    energy of several accelerators is not reported, because each process sees only its own.
    """
    watched = NoiseWatch(device, lambda: read_cpu_times(clock, launcher))
    if launcher is None or device.type == "cpu":
        return watched
    return lambda: replace(watched(), joules=None)


def read_cpu_times(clock: Callable[[], float], launcher: int | None = None) -> CpuTimes | None:
    """Read the counters; return None if none can be read."""
    try:
        stat = Path("/proc/stat").read_text(encoding="ascii")
        names = {f"cpu{core}" for core in own_cores()}
        fields = (line.split() for line in stat.splitlines())
        rows = [list(map(int, row)) for name, *row in fields if name in names]
        busy = sum(sum(row[_USER:_GUEST]) - row[_IDLE] - row[_IOWAIT] for row in rows)
        stolen = sum(row[_STEAL] for row in rows)
        own, found = _own_seconds(launcher), _quota()
        quota = (None, 0.0) if found is None else (found.cores, found.used_seconds())
    except (OSError, ValueError, IndexError, psutil.Error):
        return None
    return CpuTimes(clock(), (busy - stolen) / _TICKS, stolen / _TICKS, own, *quota)


def own_cores() -> set[int]:
    """Return the numbers of the cores that this process and its DataLoader workers may run on."""
    return os.sched_getaffinity(0)


def _own_seconds(launcher: int | None) -> float:
    """Return the CPU seconds of this process and its children, ended ones included.

    With a launcher, they are those of all processes below it.
    """
    if launcher is not None:
        return cpu_seconds_below(launcher)
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    return total + cpu_seconds_below(os.getpid())


def _gpu_of(device: torch.device) -> tuple[Any, Any] | None:
    """Return NVML and its handle of a GPU; None for other devices and without NVML."""
    if device.type != "cuda":
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except Exception:  # no NVML, no such GPU in it, or a torch that does not report the uuid
        return None


def _gpu_noise(nvml: Any, handle: Any) -> Noise:
    """Return what slows the GPU down, and its clock, as far as NVML tells."""
    clock_mhz = _told(nvml, lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
    reasons = _told(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
    others = _is_shared(nvml, handle)
    slowing = {
        "thermal": nvml.nvmlClocksThrottleReasonSwThermalSlowdown
        | nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        "power": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    }
    found = [name for name, mask in slowing.items() if reasons & mask]
    if not found and reasons & nvml.nvmlClocksThrottleReasonHwSlowdown:
        found.append("hardware slowdown")
    return Noise(
        gpu=", ".join([*found, "other processes"] if others else found),
        power_capped=bool(reasons & nvml.nvmlClocksThrottleReasonSwPowerCap),
        clock_mhz=clock_mhz,
    )


def _told(nvml: Any, ask: Callable[[], int]) -> int | None:
    """Return what NVML answers; None if it does not report it."""
    try:
        return int(ask())
    except nvml.NVMLError:
        return None


def _is_shared(nvml: Any, handle: Any) -> bool:
    """Return whether other processes than the trial's compute on the GPU, if NVML lists them."""
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return False
    # In a container NVML's process numbers are the host's: none of our own is among them.
    known = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    numbers = {process.pid for process in processes}
    return bool(numbers & known and numbers - known)


class EnergyMeter:
    """A callable that returns the joules used since its last call."""

    def __init__(self, read: Callable[[], float | None]) -> None:
        self._read, self._last = read, read()

    def __call__(self) -> float | None:
        """Return the joules since the last call; None without a counter, or if it began again.

        That of a CPU package does so now and then, which costs one block its energy.
        """
        last, now = self._last, self._read()
        self._last = now
        return None if last is None or now is None or now < last else now - last


def package_energy(powercap: Path = _POWERCAP) -> float | None:
    """Read the joules of all CPU packages; None without them or without the right to read.

    Most kernels let only root read them. Parts of a package and the whole platform (psys) are left
    out: packages hold the former, and the latter holds packages.
    """
    with suppress(OSError, ValueError):
        zones = powercap.glob("intel-rapl:*")
        packages = [zone for zone in zones if _text(zone / "name").startswith("package-")]
        if packages:
            return sum(int(_text(zone / "energy_uj")) for zone in packages) / _MICRO
    return None


def gpu_energy(nvml: Any, handle: Any) -> float | None:
    """Read the joules of a GPU; None if NVML does not report it, as before Volta."""
    found = _told(nvml, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    return None if found is None else found / _MILLI


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()
