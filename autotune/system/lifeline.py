"""A pipe between parent and child that kills the child's process group when the parent dies.

The parent holds the writing end and never writes. When the parent ends, even by `kill -9`, the
kernel closes that end. It then sends SIGKILL to the child's group, DataLoader workers included, as
the child asked it to. No thread waits for that, because a second thread would make forking a worker
unsafe.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from contextlib import suppress


def hold_lifeline(descriptor: int) -> None:
    """Tie this process group's life to the writing end of the pipe `descriptor` (Linux only)."""
    if sys.platform != "linux":
        return
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        # Nothing is ever written. A read that returns has met the end of the pipe: the parent died
        # before the signal was requested.
        os.read(descriptor, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)
