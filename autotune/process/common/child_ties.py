"""Ties between a parent and its child: lifeline, cores to stay on, messages to a warm host."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from autotune.process.common.launched import this_host

_CORES = "AUTOTUNE_CORES"
_MOST_BYTES = 1 << 17
_MOST_DESCRIPTORS = 4


@contextmanager
def open_lifeline() -> Iterator[int]:
    """Yield the reading end of a child's lifeline, which ends with this block and this process.

    A lifeline is a pipe to which nothing is ever written. When the parent ends, even by `kill -9`,
    the kernel closes the writing end. It then sends SIGKILL to the child's process group, with its
    DataLoader workers, as the child asked it to. No thread waits for that, because a second thread
    would make forking a worker unsafe.
    """
    descriptor, writing_end = os.pipe()
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        os.close(writing_end)


def place_of(descriptor: int) -> str:
    """Return where any process of this user opens a lifeline of this process: host, path.

    A launcher passes no open files on to the processes that it starts.
    """
    return f"{this_host()}:/proc/{os.getpid()}/fd/{descriptor}"


def is_here(place: str) -> bool:
    """Return True if the lifeline at `place_of` is one of this host."""
    return place.partition(":")[0] == this_host()


def hold_lifeline_at(place: str) -> None:
    """Tie this process group's life to the lifeline at `place_of`; ends it if that is gone.

    On another host it does nothing: the launcher ends processes there.
    """
    path = place.partition(":")[2]
    if not is_here(place):
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        os.killpg(os.getpgrp(), signal.SIGKILL)
    else:
        hold_lifeline(descriptor)


def hold_lifeline(descriptor: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Tie this process group's life to the pipe `descriptor` from `open_lifeline`.

    The kernel sends it the signal of that number when the parent has ended.
    """
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, number)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        # Nothing is ever written. A read that returns has met the end of the pipe: the parent died
        # before the signal was requested.
        os.read(descriptor, 1)
        os.killpg(os.getpgrp(), number)


def environ_for(cores: Iterable[int]) -> dict[str, str]:
    """Return the environment variable that pins a child to `cores`; empty for no cores."""
    text = ",".join(map(str, cores))
    return {_CORES: text} if text else {}


def stay_on_cores() -> None:
    """Pin this process, and the processes that it will start, to the cores of the environment.

    Call it before torch is imported: torch and OpenMP read the set of cores once, when they start
    their threads.
    """
    cores = os.environ.get(_CORES)
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))


def channel() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a message socket; each process closes its own."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send an object, with copies of open files.

    Raises:
        OSError: the other side is gone.
    """
    socket.send_fds(end, [json.dumps(message).encode()], list(descriptors))


def receive(end: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Wait for an object and its open files. The object is None if the other side is gone.

    Raises:
        TimeoutError: nothing came within the socket's own timeout.
    """
    try:
        text, descriptors, _, _ = socket.recv_fds(end, _MOST_BYTES, _MOST_DESCRIPTORS)
    except ConnectionError:
        return None, []
    return (json.loads(text) if text else None), descriptors
