"""Find the descendants of a process and their memory at little cost, beside a timed training.

Walking all processes of the machine takes many milliseconds. So the kernel is asked for the
children of each known process. Kernels without that list: new processes are searched among the PIDs
given out since the last look.

Reading the proportional size (PSS) holds a lock of the process that is read. The sum of the
resident sizes is its upper bound and cheap to read. So PSS is read only if that bound may be a new
peak, and if the bound or the set of processes has changed. Off Linux, psutil replaces /proc.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
# With more new PIDs since the last look, walking all processes is cheaper.
_MOST_NEW = 1000
# A forked process has a PID before /proc shows it, so the most recent PIDs are looked at twice.
_UNBORN = 16
# Proportional sizes are read again when resident memory has changed by this share.
_CHANGE = 0.05


class ProcessTree:
    """The descendants of a running process."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._below: set[int] = set()
        self._looked: tuple[int, int] | None = None
        """The newest PID at the look before the last one, and at the last one."""

    def descendants(self) -> tuple[int, ...]:
        """Return the PIDs of the living descendants, at any depth, in ascending order."""
        if _lists_children():
            self._below = _listed(self.root)
        else:
            self._renew(_newest_number())
        return tuple(sorted(self._below))

    def _renew(self, newest: int | None) -> None:
        """Drop ended processes, and look for new ones among the recent PIDs."""
        looked = self._looked
        if newest is None or looked is None or not 0 <= newest - looked[0] <= _MOST_NEW:
            self._below = _scan(self.root)
            self._looked = None if newest is None else (newest - _UNBORN, newest - _UNBORN)
            return
        self._below = {pid for pid in self._below if (_PROC / str(pid)).exists()}
        for pid in range(looked[0] + 1, newest + 1):
            if pid not in self._below and self._is_parent(_parent(pid)):
                self._below.add(pid)
        self._looked = looked[1], newest

    def cpu_seconds(self) -> float:
        """Return the CPU time of the descendants and of the children that they have reaped."""
        return sum(map(_cpu_seconds, self.descendants()))

    def _is_parent(self, pid: int | None) -> bool:
        return pid is not None and (pid == self.root or pid in self._below)


class MemoryPeak:
    """Peak of the memory that a process tree was observed to hold."""

    def __init__(self, tree: ProcessTree, host: int | None) -> None:
        self.bytes = 0
        self._tree = tree
        self._host = host
        self._processes: tuple[int, ...] = ()
        """The root and its descendants when proportional sizes were read last."""
        self._read_at = 0
        """The sum of the resident sizes when proportional sizes were read last."""

    def look(self, worth_bytes: float = 0) -> tuple[int, ...]:
        """Update the peak, if it may be above `worth_bytes`.

        Returns:
            The PIDs of the root's descendants.
        """
        below = self._tree.descendants()
        processes = (self._tree.root, *below)
        host = () if self._host is None else (self._host,)
        resident = sum(map(resident_bytes, (*processes, *host)))
        # A smaller sum may be more memory, if pages that were shared are private now.
        has_changed = abs(resident - self._read_at) > _CHANGE * self._read_at
        is_new = has_changed or processes != self._processes
        if is_new and resident > max(worth_bytes, self.bytes):
            self._read_at, self._processes = resident, processes
            self.bytes = max(self.bytes, tree_bytes(processes, self._host))
        return below


def tree_bytes(processes: Iterable[int], host: int | None) -> int:
    """Return the bytes that processes hold together, shared pages counted once.

    The pages of `host`, the process that they were forked from, count as theirs, because a fresh
    process would hold them too. Pages that only the host holds and has written do not count.
    """
    return sum(map(_proportional_bytes, processes)) + (0 if host is None else _lent_bytes(host))


def private_bytes(pid: int) -> int:
    """Return the resident bytes of a process that no file or shared memory holds; 0 once gone."""
    try:
        resident, shared = (_PROC / str(pid) / "statm").read_bytes().split()[1:3]
        return (int(resident) - int(shared)) * _PAGE
    except (OSError, ValueError):
        return 0


def resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process, shared pages included; 0 once it is gone."""
    try:
        return int((_PROC / str(pid) / "statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        with suppress(psutil.Error):
            return 0 if _PROC.exists() else int(psutil.Process(pid).memory_info().rss)
        return 0


def _proportional_bytes(pid: int) -> int:
    """Return the proportional set size (PSS) of a process in bytes; 0 once it is gone."""
    sizes = _rollup(pid)
    if "Pss" in sizes:
        return sizes["Pss"]
    with suppress(psutil.Error):
        memory = psutil.Process(pid).memory_full_info()
        return int(getattr(memory, "pss", memory.rss))
    return 0


def _lent_bytes(host: int) -> int:
    sizes = _rollup(host)
    return sizes["Pss"] - sizes["Private_Dirty"] if sizes else _proportional_bytes(host)


def _rollup(pid: int) -> dict[str, int]:
    """Return the sizes in a process's smaps_rollup, in bytes; empty if there is none."""
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
        return {(fields := line.split())[0].rstrip(":"): int(fields[1]) << 10 for line in lines}
    except (OSError, IndexError, ValueError):
        return {}


@cache
def _lists_children() -> bool:
    """Return True if this kernel lists the children of each thread, as most do."""
    pid = os.getpid()
    return (_PROC / str(pid) / "task" / str(pid) / "children").exists()


def _listed(root: int) -> set[int]:
    """Return the descendants of a process from the kernel's lists of children."""
    found: set[int] = set()
    pending = [root]
    while pending:
        for thread in _threads(pending.pop()):
            with suppress(OSError):  # it ended meanwhile
                children = set(map(int, (thread / "children").read_bytes().split())) - found
                found |= children
                pending += children
    return found


def _threads(pid: int) -> list[Path]:
    with suppress(OSError):
        return list((_PROC / str(pid) / "task").iterdir())
    return []


def _newest_number() -> int | None:
    """Return the PID of the process or thread that was started last; None if unknown."""
    try:
        number = int((_PROC / "loadavg").read_bytes().split()[-1])
    except (OSError, IndexError, ValueError):
        return None
    return number or None


def _parent(pid: int) -> int | None:
    """Return the parent of a process; None for a thread and for an ended process."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    fields = dict(line.split(":", 1) for line in lines if line.startswith(("Tgid:", "PPid:")))
    return int(fields["PPid"]) if int(fields.get("Tgid", 0)) == pid else None


def _cpu_seconds(pid: int) -> float:
    try:
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    except (OSError, ValueError):
        return 0.0


def _scan(root: int) -> set[int]:
    with suppress(psutil.Error):
        return {child.pid for child in psutil.Process(root).children(recursive=True)}
    return set()
