"""Shared memory that a killed process leaves in /dev/shm."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_SHARED = Path("/dev/shm")  # noqa: S108 (where Linux keeps shared memory)


def free_shared_memory(pids: Iterable[int], begun: Path) -> None:
    """Remove tensors that ended processes have left in shared memory.

    PyTorch creates a file `torch_PID_...` for a tensor, fills it with zeros, and removes its name.
    A DataLoader worker that is killed between the two leaves the file for good.

    Args:
        pids: the processes that have ended.
        begun: a file written before they started; older tensors are of others with a reused PID.
            Without it, nothing is removed.
    """
    since = begun.stat().st_mtime if begun.exists() else math.inf
    for pid in pids:
        for path in _SHARED.glob(f"torch_{pid}_*"):
            with suppress(OSError):
                found = path.stat()
                if found.st_uid == os.getuid() and found.st_mtime >= since:
                    path.unlink()
