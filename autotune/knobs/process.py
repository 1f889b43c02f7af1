"""Knobs of the training process itself: its threads, its allocator of memory."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from autotune.knobs.base import Integers, Knob, OneOf, Setup, Value, powers_of_two
from autotune.values.machine import Machine, read_small

_PRELOAD = "LD_PRELOAD"
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


PROCESS_KNOBS: tuple[Knob, ...] = (
    NumThreads(),
    CpuAllocator(),
)
