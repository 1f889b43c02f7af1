"""Knob of the cores that the training process and its DataLoader workers run on."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.values.machine import ROOT, Machine, read_small

_APART = "workers_apart"
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
        "physical core (spread), or others than its DataLoader workers (workers_apart). "
        "num_threads is at most the cores that are left."
    )
    pays = (
        "workers_apart, where workers interrupt the threads that compute, or the thread that feeds "
        "a GPU; compact on several sockets; spread where hardware threads share a core."
    )
    hurts = "Cores that are kept apart stand idle while the other side has more to do."
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
            return "the cores that may be used are on one NUMA node"
        physical = len({core.physical for core in cores})
        if value == "spread" and physical == len(cores):
            return "no core that may be used has a second hardware thread"
        if value == _APART and min(physical, machine.host.usable_cores) == 1:
            return "training and workers cannot share out one physical core"
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

        A mask that is no longer the knob's own is somebody else's, and is kept to.
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
    """Return the logical cores with these numbers, neighbours beside each other.

    Where /sys tells nothing, all are on one node and each is a physical core.
    """
    nodes = _nodes(root)
    return tuple(sorted(_core(number, nodes.get(number, 0), root) for number in numbers))


def _core(number: int, node: int, root: Path) -> Core:
    folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
    package, core = (
        read_small(folder / name).strip() for name in ("physical_package_id", "core_id")
    )
    return Core(
        node,
        int(package) if package.isdecimal() else 0,
        int(core) if core.isdecimal() else number,
        number,
    )


def _nodes(root: Path) -> dict[int, int]:
    """Return logical core to NUMA node; empty if there are no nodes."""
    found = {}
    for folder in (root / "sys/devices/system/node").glob("node*"):
        node = folder.name.removeprefix("node")
        if node.isdecimal():
            numbers = _listed(read_small(folder / "cpulist"))
            found.update(dict.fromkeys(numbers, int(node)))
    return found


def _listed(text: str) -> list[int]:
    """Return the numbers of a list such as "0-3,8"."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
