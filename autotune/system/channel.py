"""Messages between a runner and its warm host: one JSON object each, with open files."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

_MOST_BYTES = 1 << 16
_MOST_DESCRIPTORS = 4


def channel() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a message socket; each process closes its own (Linux only)."""
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
