"""A pipe between parent and child that ends the child's whole process group when the parent dies.

The parent holds the writing end and never writes. However the parent ends, `kill -9` included, the
kernel closes that end and, as the child asked it to, sends SIGKILL to the child's group: the child
and its DataLoader workers. No thread waits for it, because a second thread would make every fork of
a worker unsafe.
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
        # Nothing is ever written: an answer is the end of the pipe, whose closing came too early
        # for the kernel to be told of.
        os.read(descriptor, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)
