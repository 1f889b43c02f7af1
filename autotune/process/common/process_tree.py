"""Find the descendants of a process and their memory at little cost, beside a timed training.

Walking all processes of the machine takes many milliseconds. So the kernel is asked for the
children of each known process, where it has such lists.

Reading the proportional size (PSS) holds a lock of the process that is read. The sum of the
resident sizes is its upper bound and cheap to read. So PSS is read only if that bound may be a new
peak, and if the bound or the set of processes has changed.
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
# Proportional sizes are read again when resident memory has changed by this share.
_CHANGE = 0.05


def descendants(root: int) -> tuple[int, ...]:
    """Return the PIDs of the living descendants of a process, at any depth, in ascending order."""
    if not _lists_children():
        with suppress(psutil.Error):
            below = psutil.Process(root).children(recursive=True)
            return tuple(sorted(child.pid for child in below))
        return ()
    found: set[int] = set()
    pending = [root]
    while pending:
        threads = _PROC / str(pending.pop()) / "task"
        with suppress(OSError):  # it ended meanwhile
            for thread in threads.iterdir():
                children = set(map(int, (thread / "children").read_bytes().split())) - found
                found |= children
                pending += children
    return tuple(sorted(found))


def cpu_seconds_below(root: int) -> float:
    """Return the CPU time of a process's descendants and of the children that they have reaped."""
    return sum(map(_cpu_seconds, descendants(root)))


class MemoryPeak:
    """Peak of the memory that a process and its descendants were observed to hold.

    `host` is the process from which it was forked, if any; see `tree_bytes`.
    """

    def __init__(self, root: int, host: int | None) -> None:
        self.bytes = 0
        self._root = root
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
        below = descendants(self._root)
        processes = (self._root, *below)
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

    These are the proportional set sizes (PSS), or resident sizes where the kernel tells no others.
    The pages of `host`, the process that they were forked from, count as theirs, because a fresh
    process would hold them too. Pages that only the host holds and has written do not count.
    """
    lent, sizes = 0, {} if host is None else _rollup(host)
    if host is not None:
        lent = sizes["Pss"] - sizes["Private_Dirty"] if sizes else resident_bytes(host)
    return sum(_rollup(pid).get("Pss", resident_bytes(pid)) for pid in processes) + lent


def private_bytes(pid: int) -> int:
    """Return the resident bytes of a process that no file or shared memory holds; 0 once gone."""
    resident, shared = _pages(pid)
    return (resident - shared) * _PAGE


def resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process, shared pages included; 0 once it is gone."""
    return _pages(pid)[0] * _PAGE


def _pages(pid: int) -> tuple[int, int]:
    """Return a process's resident pages, and those of them that are shared; none once gone."""
    try:
        resident, shared = (_PROC / str(pid) / "statm").read_bytes().split()[1:3]
        return int(resident), int(shared)
    except (OSError, ValueError):
        return 0, 0


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


def _cpu_seconds(pid: int) -> float:
    try:
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    except (OSError, ValueError):
        return 0.0
