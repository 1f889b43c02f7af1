"""Locks on devices, at which all processes of a host meet, whoever runs them.

A lock is a Unix socket with a name in Linux' abstract namespace, which is no file: one process at a
time can be bound to it, and the kernel lets go of it with its process. So there is no folder to
agree on, whose place a user's variables could change, nothing that a cleaner of temporary files
could take away, and nothing to be left behind by a crash.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from autotune.errors import StorageError

_PREFIX = "\0autotune/device/"
_LONGEST = 80
_LOOK_SECONDS = 0.2
_CARD = re.compile(r"(GPU|MIG)-", re.IGNORECASE)


def lock_names(
    device: str, cores: Sequence[int] = (), uuid: str = "", visible: str = ""
) -> tuple[str, ...]:
    """A name for all that only one trial at a time may use, in one order for everybody.

    Args:
        device: as torch spells it: "cpu", "cuda:1".
        cores: of the CPU, where the device is some of them.
        uuid: of the accelerator, as torch tells it; empty where nobody asked yet.
        visible: `CUDA_VISIBLE_DEVICES`, by which one card has other numbers in other processes.
    """
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return tuple(f"cpu-{core}" for core in sorted(cores))
    place = int(index) if index.isdecimal() else 0
    entries = [entry.strip() for entry in visible.split(",")]
    entry = entries[place] if kind == "cuda" and place < len(entries) else ""
    if entry.upper().startswith("MIG-"):  # a slice of a card, whose uuid may be the card's
        return (_safe(f"{kind}-{entry}"),)
    if uuid:
        return (_safe(f"{kind}-GPU-{_CARD.sub('', uuid)}"),)
    return (_safe(f"{kind}-{entry or place}"),)


def _safe(name: str) -> str:
    """As short as the name of a socket has to be, however the variable was written."""
    return re.sub("[^a-z0-9-]", "-", name.lower())[:_LONGEST]


def visible_devices() -> str:
    """`CUDA_VISIBLE_DEVICES` of this process, which its children inherit."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


@contextmanager
def device_locks(names: Iterable[str], check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold devices while the block runs; sleeps while somebody else holds one.

    Args:
        names: of `lock_names`.
        check: called now and then while waiting; what it raises ends that.

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
    """Whether the lock is ours now; False where somebody else has it."""
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
