"""Limits of the cgroups that this process lies in, of version 1 and 2, and what they used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
# cgroup v1 writes "no limit" as a number near 2**63 instead of a word.
_NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """The tightest CPU quota of this process, and where to read what was used of it."""

    cores: float
    """The quota in cores."""
    unified: Path
    """File of version 2 with the cgroup's CPU time."""
    separate: Path
    """File of version 1 with it."""

    def used_seconds(self) -> float:
        """Return the CPU seconds of all processes in the cgroup so far.

        Raises:
            ValueError: neither file tells.
        """
        for line in read_small(self.unified).splitlines():
            name, _, value = line.partition(" ")
            if name == "usage_usec":
                return int(value) / 1e6
        return int(read_small(self.separate)) / 1e9


def cpu_quota(root: Path = ROOT) -> CpuQuota | None:
    """Return the tightest CPU quota from this process's cgroup up to the root; None without one."""
    quotas = []
    mounts = root / "sys/fs/cgroup"
    for folder in cgroup_folders(root, "cpu"):
        v2 = read_small(folder / "cpu.max").split()
        v1 = [read_small(folder / "cpu.cfs_quota_us"), read_small(folder / "cpu.cfs_period_us")]
        quota, period = v2 if len(v2) == 2 else [text.strip() for text in v1]  # noqa: PLR2004
        if quota.isdigit() and period.isdigit() and int(period):
            below = folder.relative_to(mounts).parts[1:]
            used = mounts.joinpath("cpuacct", *below, "cpuacct.usage")
            quotas.append(CpuQuota(int(quota) / int(period), folder / "cpu.stat", used))
    return min(quotas, key=lambda found: found.cores, default=None)


def memory_limit(root: Path = ROOT) -> int | None:
    """Return the tightest memory limit in bytes from this process's cgroup up to the root."""
    limits = []
    for folder in cgroup_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = read_small(folder / name).strip()
            if text.isdigit() and int(text) < _NO_LIMIT_BYTES:
                limits.append(int(text))
    return min(limits, default=None)


def cgroup_folders(root: Path, controller: str) -> list[Path]:
    """Return the folders that may limit this process, own cgroup first, for cgroup v1 and v2."""
    folders = []
    for line in read_small(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        mount = root / "sys/fs/cgroup"
        if controllers:
            if controller not in controllers.split(","):
                continue
            mount = mount / controller
        own = mount / path.lstrip("/")
        folders += [own, *(parent for parent in own.parents if parent.is_relative_to(mount))]
    return folders


def read_small(path: Path) -> str:
    """Return a small file's text; empty if it is missing, as in /proc and /sys."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
