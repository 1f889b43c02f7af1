"""Pseudo terminals for tests: what reaches a person's screen, byte for byte."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TextIO


class Terminal:
    """A terminal of so many columns; programs write to `far`, and `seen` is what reached it."""

    def __init__(self, columns: int = 100, rows: int = 40) -> None:
        self._near, self.far = pty.openpty()
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._bytes = bytearray()
        # A terminal that nobody reads makes its writers wait.
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def settings(self) -> list[object]:
        """Echo, line editing and so on: what a program has to leave as it was."""
        return termios.tcgetattr(self.far)

    @property
    def so_far(self) -> str:
        """Return what has been written until now."""
        return self._bytes.decode()

    def type(self, keys: str) -> None:
        """As if somebody pressed these keys."""
        os.write(self._near, keys.encode())

    def seen(self) -> str:
        """All that was written, once nobody holds the terminal any more."""
        os.close(self.far)
        self._reader.join(timeout=10)
        os.close(self._near)
        return self.so_far

    def _read(self) -> None:
        try:
            while chunk := os.read(self._near, 4096):
                self._bytes += chunk
        except OSError:
            return  # the last writer has closed its end


@contextmanager
def written_to(terminal: Terminal) -> Iterator[TextIO]:
    """The terminal as a stream."""
    with os.fdopen(os.dup(terminal.far), "w", encoding="utf-8", buffering=1) as stream:
        yield stream
