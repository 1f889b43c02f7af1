"""Who runs a trial: enough of a process to tell later, and from elsewhere, whether it still lives.

A number alone does not do: numbers are given out again, and start anew with the machine.
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
"""Facts that only processes of now own: the storage alone holds them, a journal never does."""
# In `/proc/PID/stat`, after the name in brackets: when the process began, in ticks since the boot.
_START_FIELD = 19


@dataclass(frozen=True, slots=True)
class Lease:
    """One run of a search or of a worker, as a trial's attribute `lease` names it."""

    host: str
    boot_id: str
    pid: int
    started: float
    """Ticks from the boot of the machine: setting the clock does not change it."""
    key: int = field(default_factory=lambda: secrets.randbits(62))
    """Tells apart what one process holds one after the other."""

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"

    def lives_here(self) -> bool:
        """Whether that process is another one of this machine and still runs."""
        return self._is_of_here() and self.pid != os.getpid() and self._runs()

    def died_here(self) -> bool:
        """Whether that process was one of this machine, which is sure that it is gone."""
        return self._is_of_here() and not self._runs()

    def _is_of_here(self) -> bool:
        return (self.host, self.boot_id) == (_host(), _boot_id())

    def _runs(self) -> bool:
        return _started(self.pid) == self.started


def own_lease() -> Lease:
    """A lease of this process."""
    return Lease(_host(), _boot_id(), os.getpid(), _started(os.getpid()) or 0.0)


def lease_of(fact: Any) -> Lease | None:
    """The lease that an attribute holds; None where it holds none."""
    try:
        return _adapter().validate_python(fact)
    except ValidationError:
        return None


@cache
def _adapter() -> TypeAdapter[Lease]:
    return TypeAdapter(Lease)


def _host() -> str:
    """The machine as its processes number themselves: containers count on their own."""
    namespace = Path("/proc/self/ns/pid")
    numbered = f"/{namespace.readlink()}" if namespace.exists() else ""
    return socket.gethostname() + numbered


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def _started(pid: int) -> float | None:
    """When a process began; None where there is none of that number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return float(stat.rpartition(")")[2].split()[_START_FIELD])
    except OSError:
        pass
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
