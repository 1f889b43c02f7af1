"""Locks on devices that are shared by all processes and users of a host.

A lock is a Unix socket with a name in Linux' abstract namespace, which is no file. One process at a
time can be bound to it, and the kernel releases it when the process ends. So no folder has to be
agreed on, no cleaner of temporary files removes a lock, and no crash leaves one behind.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from autotune.values.errors import StorageError

_PREFIX = "\0autotune/device/"
_LONGEST = 80
_LOOK_SECONDS = 0.2
_CARD = re.compile(r"(GPU|MIG)-", re.IGNORECASE)


def lock_names(
    device: str, cores: Sequence[int] = (), uuid: str = "", visible: str = ""
) -> tuple[str, ...]:
    """Return the names of the locks that a trial on `device` needs, in the order to take them in.

    Args:
        device: name as torch spells it: "cpu", "cuda:1".
        cores: cores of the CPU that the trial uses.
        uuid: UUID of the accelerator from torch; empty if not known yet.
        visible: `CUDA_VISIBLE_DEVICES`, under which a GPU has other numbers in other processes.
    """
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return tuple(f"cpu-{core}" for core in sorted(cores))
    place = int(index) if index.isdecimal() else 0
    entries = [entry.strip() for entry in visible.split(",")]
    entry = entries[place] if kind == "cuda" and place < len(entries) else ""
    if entry.upper().startswith("MIG-"):  # a slice of a GPU, whose uuid may be the whole GPU's
        return (_safe(f"{kind}-{entry}"),)
    if uuid:
        return (_safe(f"{kind}-GPU-{_CARD.sub('', uuid)}"),)
    return (_safe(f"{kind}-{entry or place}"),)


def _safe(name: str) -> str:
    """Return a name that is short and plain enough for a socket, whatever the variable holds."""
    return re.sub("[^a-z0-9-]", "-", name.lower())[:_LONGEST]


def visible_devices() -> str:
    """Return `CUDA_VISIBLE_DEVICES` of this process, which its children inherit."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


@contextmanager
def device_locks(names: Iterable[str], check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock devices while the block runs; wait while another process has one of the locks.

    Args:
        names: names from `lock_names`.
        check: called about five times a second while waiting; an error that it raises ends the
            wait.

    Raises:
        StorageError: this system has no such locks.
    """
    with ExitStack() as held:
        for name in names:
            lock = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            while not _bound(lock, name):
                check()
                time.sleep(_LOOK_SECONDS)
        yield


def _bound(lock: socket.socket, name: str) -> bool:
    """Try to take a lock; return True if that worked, False if another process has it."""
    try:
        lock.bind(_PREFIX + name)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise StorageError(
            f"the device {name} cannot be locked against other processes: {error.strerror}. "
            "Searches of one device that share a host need Linux."
        ) from error
    return True
