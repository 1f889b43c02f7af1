"""Facts on this machine, and on the part of it that this process may use.

`Host` is read only from the operating system, cgroups of version 1 and 2 included.
`Machine` adds facts that only torch knows: device, native dtypes, compile modes. A child process
fills them in, see `autotune.training.inspection`.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import shutil
from dataclasses import asdict, dataclass
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
            ValueError: neither file has it.
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


_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Host:
    """Facts on a machine that the operating system gives without torch."""

    cpu_name: str
    cpu_count: int
    """Number of logical cores of the machine."""
    affinity_count: int
    """Number of cores that this process may be scheduled on (sched_getaffinity)."""
    quota_cores: float | None
    """CPU quota of the cgroup, in cores; None: no quota."""
    memory_bytes: int
    """Physical memory of the machine."""
    memory_limit_bytes: int | None
    """Memory limit of the cgroup; None: no limit."""
    shm_bytes: int | None
    """Size of /dev/shm, through which DataLoader workers pass batches; None: there is none."""
    compiler: str | None
    """Path of a C++ compiler, which torch.compile needs on CPU; None: there is none."""

    @property
    def usable_cores(self) -> int:
        """Return the number of usable cores: affinity, further limited by the cgroup's quota."""
        quota = self.affinity_count if self.quota_cores is None else math.ceil(self.quota_cores)
        return max(1, min(self.affinity_count, quota))

    @property
    def usable_memory_bytes(self) -> int:
        """Return the memory of the machine or of the cgroup, whichever is less."""
        return min(self.memory_bytes, self.memory_limit_bytes or self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Machine:
    """One device of one host, as trials will find it."""

    host: Host
    device: str
    """Device as torch spells it: "cpu", "cuda:0"."""
    device_name: str
    device_memory_bytes: int | None
    """Memory of the accelerator; None on CPU, where the host's memory counts."""
    python: str
    torch: str
    default_num_threads: int
    """PyTorch's default number of intra-op threads."""
    native_dtypes: tuple[str, ...]
    """Autocast dtypes with native instructions here; others are emulated and slow."""
    matmul_precisions: tuple[str, ...]
    """float32_matmul_precision values whose results differ from each other here."""
    compile_modes: tuple[str, ...]
    """Modes of torch.compile in this version."""
    compile_obstacle: str
    """Reason why torch.compile cannot work here; empty if it can."""
    cuda_graphs: bool
    driver: str = ""
    """Version of the accelerator's driver; empty without an accelerator or if unknown."""

    @property
    def device_type(self) -> str:
        """Return the device without its index: "cuda" for "cuda:0"."""
        return self.device.partition(":")[0]

    @property
    def has_accelerator(self) -> bool:
        """Return True if batches are copied to a device with its own memory."""
        return self.device_type != "cpu"

    @property
    def memory_bytes(self) -> int:
        """Return the memory in which training has to fit."""
        if self.device_memory_bytes is None:
            return self.host.usable_memory_bytes
        return self.device_memory_bytes

    @property
    def fingerprint(self) -> str:
        """Return twelve hex digits that change when a measurement made here may no longer hold.

        Equal devices have the same fingerprint.
        """
        facts = asdict(self) | {"device": self.device_type}
        # Equal machines differ by some pages that their firmware reserves.
        for name in ("memory_bytes", "shm_bytes"):
            facts["host"][name] = round((facts["host"][name] or 0) / _GIB)
        text = repr(sorted(facts.items())).encode()
        return hashlib.sha256(text).hexdigest()[:12]


def probe_host(root: Path = ROOT) -> Host:
    """Read cores, memory, shared memory and compiler; tests pass their own `root`."""
    quota, cores = cpu_quota(root), os.cpu_count() or 1
    lines = read_small(root / "proc/cpuinfo").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    shm = root / "dev/shm"
    return Host(
        cpu_name=names[0] if names else platform.processor() or platform.machine(),
        cpu_count=cores,
        affinity_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores,
        quota_cores=None if quota is None else quota.cores,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        memory_limit_bytes=memory_limit(root),
        shm_bytes=shutil.disk_usage(shm).total if shm.is_dir() else None,
        compiler=shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++"),
    )


def c_compiler() -> str | None:
    """Return the C compiler that Triton calls: `CC`, else gcc or clang, else None.

    Triton does not look for `cc`.
    """
    if (asked := os.environ.get("CC")) is not None:
        return shutil.which(asked)
    return shutil.which("gcc") or shutil.which("clang")


def nvidia_driver(root: Path = ROOT) -> str:
    """Return the version of NVIDIA's kernel driver; empty if there is none or it is unreadable."""
    version = re.search(r"^NVRM.*?\s(\d+\.[\d.]+)", read_small(root / "proc/driver/nvidia/version"))
    return version[1] if version else ""


def nvidia_gpus(root: Path = ROOT) -> tuple[str, ...] | None:
    """Return the names of NVIDIA's GPUs, as torch spells them; None if the kernel has no list.

    There is no list under WSL (/dev/dxg) and in some containers.
    """
    folder = root / "proc/driver/nvidia/gpus"
    texts = [read_small(path) for path in sorted(folder.glob("*/information"))]
    found = [re.search(r"^Model:\s*(\S.*?)\s*$", text, re.MULTILINE) for text in texts]
    names = tuple(name[1] for name in found if name)
    unlisted = any((root / "dev" / name).exists() for name in ("nvidiactl", "dxg"))
    return None if unlisted and not names else names


def oom_kills(root: Path = ROOT) -> int:
    """Return the number of OOM kills: in this cgroup, else on the machine.

    The nearest cgroup with a counter is read; it includes the cgroups below it.
    """
    folders = cgroup_folders(root, "memory")
    for name in ("memory.events", "memory.oom_control"):
        counts = [count for folder in folders for count in _counts(folder / name)]
        if counts:
            return counts[0]
    return next(iter(_counts(root / "proc/vmstat")), 0)


def _counts(path: Path) -> list[int]:
    rows = [line.split() for line in read_small(path).splitlines()]
    return [int(row[1]) for row in rows if len(row) == 2 and row[0] == "oom_kill"]  # noqa: PLR2004
