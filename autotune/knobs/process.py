"""Knobs of the training process itself: its threads, its cores, its allocator of memory."""

from __future__ import annotations

import ctypes
import ctypes.util
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotune.knobs.base import Integers, Knob, OneOf, Setup, Value, powers_of_two
from autotune.values.machine import ROOT, Machine, read_small

_PRELOAD = "LD_PRELOAD"
_APART = "workers_apart"
# Allocator: its libraries as the linker names them, the file of the first, Debian's package.
_LIBRARIES = {
    "jemalloc": (("jemalloc",), "libjemalloc.so.2", "libjemalloc2"),
    "tcmalloc": (
        ("tcmalloc_minimal", "tcmalloc"),
        "libtcmalloc_minimal.so.4",
        "libtcmalloc-minimal4",
    ),
}


class NumThreads(Knob):
    """Threads inside one operation on the CPU."""

    name = "num_threads"
    default = None
    values = Integers(1, 1024, nullable=True)
    summary = "Intra-op CPU threads of the training process; null is PyTorch's own choice."
    pays = "On CPU: fewer threads leave cores to DataLoader workers and shorten barriers."
    hurts = (
        "Too few starve large operations; more than cores make threads wait for each other. "
        "Another number of threads sums in another order, which changes the last digits."
    )
    call = "torch.set_num_threads(...)"
    source = "https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html"

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        cores = machine.host.usable_cores
        return tuple(sorted({*powers_of_two(1, cores), cores, machine.default_num_threads}))

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        cores = machine.host.cpu_count
        if isinstance(value, int) and value > cores:
            return f"at most {cores}: the machine has no more cores"
        return None

    def resolve(self, value: Value, machine: Machine) -> Value:
        return machine.default_num_threads if value is None else value

    def on_process(self, value: Value) -> None:
        import torch

        if isinstance(value, int):
            torch.set_num_threads(value)

    def read_process(self) -> Value:
        import torch

        return torch.get_num_threads()

    def setters(self) -> Iterable[tuple[Any, str]]:
        import torch

        return ((torch, "set_num_threads"),)


class CpuAllocator(Knob):
    """Library that serves malloc in the training process and its workers."""

    name = "cpu_allocator"
    default = None
    values = OneOf((None, *_LIBRARIES))
    summary = (
        "Library that allocates memory of the host, preloaded if it is installed; null keeps the "
        "C library's malloc."
    )
    pays = "On CPU: large tensors of changing sizes, which malloc returns and faults in again."
    hurts = "Freed memory is kept longer, so the peak may grow."
    call = "LD_PRELOAD=libjemalloc.so.2 in the environment, before Python starts"
    source = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value is None or self.resolve(None, machine) == value:
            return None
        if library(str(value)) is None:
            return f"lib{value} is not installed: apt-get install {_LIBRARIES[str(value)][2]}"
        return None

    def resolve(self, value: Value, machine: Machine) -> Value:
        known = (_kind(entry) for entry in _preloaded())
        return next(filter(None, known), None) if value is None else value

    def environ(self, value: Value) -> Mapping[str, str]:
        entries = _preloaded()
        if value is None:
            return {}
        if value not in [_kind(entry) for entry in entries]:
            others = [entry for entry in entries if _kind(entry) is None]
            entries = [library(str(value)) or _LIBRARIES[str(value)][1], *others]
        return {_PRELOAD: ":".join(entries)}

    def read_back(self, setup: Setup) -> Value:
        return allocator_in_use()


Cores = frozenset[int]
WorkerInit = Callable[[int], None]
"""Function that a DataLoader worker calls at its start, with its number."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Cores of the training process and those of its DataLoader workers."""

    compute: Cores
    workers: Cores


@dataclass(frozen=True, slots=True)
class OnCores:
    """A `worker_init_fn` that keeps a DataLoader worker on cores, then calls the user's own."""

    cores: Cores
    own: WorkerInit | None = None

    def __call__(self, worker: int) -> None:
        """Move the worker that calls this."""
        _move(self.cores)
        if self.own is not None:
            self.own(worker)


def parted(value: Value, threads: int, allowed: Collection[int]) -> Parts:
    """Return the cores that a value of the knob gives to training and to its workers.

    Args:
        value: a value of the knob.
        threads: the number of threads that is asked for; `workers_apart` gives training as many
            physical cores if that leaves any to the workers, else half of all.
        allowed: numbers of the cores that may be used.
    """
    cores = cores_of(allowed)
    compute, workers = cores, cores[:0]
    match value:
        case "compact":
            node, _ = Counter(core.node for core in cores).most_common(1)[0]
            compute = tuple(core for core in cores if core.node == node)
        case "spread":
            compute = tuple({core.physical: core for core in reversed(cores)}.values())
        case "workers_apart":
            physical = list(dict.fromkeys(core.physical for core in cores))
            count = threads if threads < len(physical) else (len(physical) + 1) // 2
            compute = tuple(core for core in cores if core.physical in physical[:count])
            workers = tuple(core for core in cores if core.physical in physical[count:])
    return Parts(
        compute=frozenset(core.number for core in compute),
        workers=frozenset(core.number for core in workers or compute),
    )


class CpuAffinity(Knob):
    """Cores of the training process and of its workers; a state of this process, as the mask is."""

    name = "cpu_affinity"
    default = None
    values = OneOf((None, "compact", "spread", _APART))
    summary = (
        "Cores that training keeps to: one NUMA node (compact), one hardware thread of each "
        "physical core (spread), or cores without DataLoader workers (workers_apart). num_threads "
        "is at most their number."
    )
    pays = (
        "workers_apart: when workers interrupt the threads that compute, or the thread that feeds "
        "a GPU. compact: on several sockets. spread: when hardware threads share a core."
    )
    hurts = "Cores set apart stand idle while the other side has more to do."
    call = "os.sched_setaffinity(0, ...), for workers in DataLoader(worker_init_fn=...)"
    source = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

    def __init__(self) -> None:
        self._value: Value = None
        self._parts: Parts | None = None
        self._before: Cores = frozenset()

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value is None:
            return None
        cores = cores_of(self.allowed())
        if value == "compact" and len({core.node for core in cores}) == 1:
            return "the usable cores are on one NUMA node"
        physical = len({core.physical for core in cores})
        if value == "spread" and physical == len(cores):
            return "no usable core has a second hardware thread"
        if value == _APART and min(physical, machine.host.usable_cores) == 1:
            return "one physical core cannot be divided between training and workers"
        return None

    def on_process(self, value: Value) -> None:
        if value is None and self._parts is None:
            return
        import torch

        threads, self._before = torch.get_num_threads(), self.allowed()
        self._value, self._parts = value, parted(value, threads, self._before)
        _move(self._parts.compute)
        if value is not None:
            torch.set_num_threads(min(threads, len(self._parts.compute)))

    def read_process(self) -> Value:
        is_ours = self._parts is not None and _mask() == self._parts.compute
        return self._value if is_ours else None

    def worker_init(self, value: Value, own: WorkerInit | None) -> WorkerInit | None:
        """Return the function for the start of DataLoader workers; `own` is the user's."""
        if value != _APART or self._parts is None:
            return own
        return OnCores(self._parts.workers, own)

    def read_back(self, setup: Setup) -> Value:
        value = self.read_process()
        try:
            loader = setup.loader
        except LookupError:  # a script without one has no workers that could be elsewhere
            return value
        if value == _APART and loader.num_workers and not self._are_apart(loader):
            return None
        return value

    def allowed(self) -> Cores:
        """Return the cores that this process might use without this knob.

        A mask that this knob did not set is somebody else's, and is respected.
        """
        now = _mask()
        return self._before if self._parts and now == self._parts.compute else now

    def threads_left(self, value: Value, threads: Value) -> Value:
        """Return `num_threads`, at most the cores that a value of this knob leaves to training."""
        if value is None or not isinstance(threads, int):
            return threads
        return min(threads, len(parted(value, threads, self.allowed()).compute))

    def _are_apart(self, loader: Any) -> bool:
        """Return True if the workers keep to their cores; those that just started may not yet."""
        assert self._parts is not None
        init, masks = loader.worker_init_fn, set()
        for worker in multiprocessing.active_children():
            with suppress(OSError):  # it ended meanwhile
                if worker.daemon and worker.pid is not None:
                    masks.add(_mask(worker.pid))
        known = {self._parts.workers, self._parts.compute}
        seen = not masks or (self._parts.workers in masks and masks <= known)
        return isinstance(init, OnCores) and init.cores == self._parts.workers and seen


def _mask(process: int = 0) -> Cores:
    return frozenset(os.sched_getaffinity(process))


def _move(cores: Cores) -> None:
    """Keep every thread of this process to cores: a mask is a thread's own, and some may run."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it ended meanwhile
            os.sched_setaffinity(int(thread.name), cores)


AFFINITY = CpuAffinity()


@dataclass(frozen=True, order=True, slots=True)
class Core:
    """A logical core; cores sort by NUMA node, then by physical core, then by number."""

    node: int
    package: int
    core: int
    """Number of the physical core within its package."""
    number: int
    """Number of the logical core, as in an affinity mask."""

    @property
    def physical(self) -> tuple[int, int]:
        """Return the same pair for the hardware threads of one physical core."""
        return self.package, self.core


def cores_of(numbers: Iterable[int], root: Path = ROOT) -> tuple[Core, ...]:
    """Return the logical cores with these numbers, neighbours next to each other.

    If /sys has nothing on them, all are on one node and each is a physical core.
    """
    system = root / "sys/devices/system/cpu"
    return tuple(sorted(_core(number, system / f"cpu{number}") for number in numbers))


def _core(number: int, folder: Path) -> Core:
    names = ("topology/physical_package_id", "topology/core_id")
    package, core = (read_small(folder / name).strip() for name in names)
    nodes = [int(link.name.removeprefix("node")) for link in folder.glob("node[0-9]*")]
    return Core(
        nodes[0] if nodes else 0,
        int(package) if package.isdecimal() else 0,
        int(core) if core.isdecimal() else number,
        number,
    )


@cache
def library(allocator: str) -> str | None:
    """Return the file name under which the dynamic linker finds an allocator; None if nowhere."""
    names, _, _ = _LIBRARIES[allocator]
    return next(filter(None, map(ctypes.util.find_library, names)), None)


def allocator_in_use() -> Value:
    """Return the allocator whose library malloc of this process lies in; None for another."""
    malloc = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value or 0
    for line in read_small(Path("/proc/self/maps")).splitlines():
        span, *columns = line.split(maxsplit=5)
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= malloc < last:
            return _kind(columns[-1])
    return None


def _preloaded() -> list[str]:
    """Return the libraries that LD_PRELOAD names already."""
    return [entry for entry in re.split(r"[:\s]+", os.environ.get(_PRELOAD, "")) if entry]


def _kind(path: str) -> str | None:
    """Return the allocator that a library is, by the name of its file."""
    return next((name for name in _LIBRARIES if Path(path).name.startswith(f"lib{name}")), None)


def at_start(name: str) -> str | None:
    """Return a variable's value at the start of this process, which is what libraries read."""
    try:
        variables = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:  # not Linux
        return os.environ.get(name)
    found = [entry for entry in variables if entry.startswith(f"{name}=".encode())]
    return found[0].decode(errors="replace").partition("=")[2] if found else None


# num_threads comes before cpu_affinity, which limits it to the cores that it leaves.
PROCESS_KNOBS: tuple[Knob, ...] = (
    NumThreads(),
    AFFINITY,
    CpuAllocator(),
)
