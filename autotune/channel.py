"""Messages between a runner and its warm host: one JSON object each, open files along with it."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

_MOST_BYTES = 1 << 16
_MOST_DESCRIPTORS = 4


def channel() -> tuple[socket.socket, socket.socket]:
    """Two ends that keep messages apart, each to be closed by one process (Linux only)."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send an object, and copies of open files with it.

    Raises:
        OSError: the other side is gone.
    """
    socket.send_fds(end, [json.dumps(message).encode()], list(descriptors))


def receive(end: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Wait for an object and the open files that came with it; None where the other side is gone.

    Raises:
        TimeoutError: nothing came within the socket's own timeout.
    """
    try:
        text, descriptors, _, _ = socket.recv_fds(end, _MOST_BYTES, _MOST_DESCRIPTORS)
    except ConnectionError:
        return None, []
    return (json.loads(text) if text else None), descriptors
