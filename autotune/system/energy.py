"""Energy that a device used, from counters of the kernel or of a driver.

Linux counts the energy of CPU packages (RAPL) in microjoules, from 0 to a range. NVML counts that
of a GPU in millijoules since its driver was loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Reading = tuple[tuple[int, int], ...]
"""Microjoules of each counter, and the value after which it begins again at 0; 0 if it does not."""

_POWERCAP = Path("/sys/class/powercap")
_MICRO, _IN_MILLI = 1e6, 1000


class EnergyMeter:
    """A callable that returns the joules used since its last call."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._last = read()

    def __call__(self) -> float | None:
        """Return the joules since the last call; None where no counter tells."""
        last, self._last = self._last, self._read()
        if not last or len(last) != len(self._last):
            return None
        parts = [_passed(a, b, wraps) for (a, wraps), (b, _) in zip(last, self._last, strict=True)]
        known = [part for part in parts if part is not None]
        return sum(known) / _MICRO if len(known) == len(parts) else None


def _passed(last: int, now: int, wraps: int) -> int | None:
    """Return the microjoules between two values of a counter; None if it was reset."""
    if now >= last:
        return now - last
    return now - last + wraps if wraps else None


def package_energy(powercap: Path = _POWERCAP) -> Reading:
    """Read the counters of all CPU packages; empty without them or without the right to read.

    Most kernels let root alone read them. Parts of a package and the whole platform (psys) are left
    out: packages hold the former, and the latter holds packages.
    """
    try:
        zones = sorted(powercap.glob("intel-rapl:*"))
        packages = [zone for zone in zones if _text(zone / "name").startswith("package-")]
        return tuple(
            (int(_text(zone / "energy_uj")), int(_text(zone / "max_energy_range_uj")))
            for zone in packages
        )
    except (OSError, ValueError):
        return ()


def gpu_energy(nvml: Any, handle: Any) -> Reading:
    """Read the counter of a GPU; empty where NVML does not tell, as before Volta."""
    try:
        return ((int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) * _IN_MILLI, 0),)
    except nvml.NVMLError:
        return ()


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()
