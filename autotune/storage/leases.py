"""Leases identify the process that runs a trial, so that others can tell if it still lives.

A process number alone is not enough: numbers are reused, and start anew with the machine.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter, ValidationError

LEASE, LEADER, CLOSED = "lease", "leader", "closed"
LIVE = frozenset((LEASE, LEADER, CLOSED))
"""Facts about live processes; they are in the storage only, never in a journal."""
# Index in `/proc/PID/stat` after the name in brackets: start of the process, in ticks since boot.
_START_FIELD = 19


@dataclass(frozen=True, slots=True)
class Lease:
    """One run of a search or of a worker, as stored in the attribute `lease` of a trial."""

    host: str
    boot_id: str
    pid: int
    started: float
    """Start of the process in ticks since boot, which setting the clock does not change."""
    key: int = field(default_factory=lambda: secrets.randbits(62))
    """Random number that distinguishes successive leases of one process."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"

    def lives_here(self) -> bool:
        """Return True if that is another process of this machine and still runs."""
        return self._is_of_here() and self.pid != os.getpid() and self._runs()

    def died_here(self) -> bool:
        """Return True if that was a process of this machine and has certainly ended."""
        return self._is_of_here() and not self._runs()

    def _is_of_here(self) -> bool:
        return (self.host, self.boot_id) == (_host(), _boot_id())

    def _runs(self) -> bool:
        return _started(self.pid) == self.started


def own_lease() -> Lease:
    """Return a new lease of this process."""
    return Lease(_host(), _boot_id(), os.getpid(), _started(os.getpid()) or 0.0)


def lease_of(fact: Any) -> Lease | None:
    """Parse the lease in an attribute; return None if it is none."""
    try:
        return _adapter().validate_python(fact)
    except ValidationError:
        return None


@cache
def _adapter() -> TypeAdapter[Lease]:
    return TypeAdapter(Lease)


def _host() -> str:
    """Return the host's name with its PID namespace, since containers number processes anew."""
    namespace = Path("/proc/self/ns/pid")
    numbered = f"/{namespace.readlink()}" if namespace.exists() else ""
    return socket.gethostname() + numbered


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def _started(pid: int) -> float | None:
    """Return the start of a process; None if no process has that number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return float(stat.rpartition(")")[2].split()[_START_FIELD])
    except OSError:
        pass
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
