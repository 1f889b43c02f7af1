"""Show that a program still works after every ten seconds without output."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_EVERY_SECONDS = 10.0


class Waiting:
    """Calls a function in another thread after every `every` seconds without output."""

    def __init__(self, say: Callable[[float], None], every: float = _EVERY_SECONDS) -> None:
        """Prepare to call `say` with the seconds since the last output."""
        self._say = say
        self._every = every
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def saying(self) -> Iterator[None]:
        """Hold `say` back while the block writes output itself."""
        with self._lock:
            try:
                yield
            finally:
                self._since = time.monotonic()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Call `say` while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()

    def _run(self) -> None:
        due = self._every
        while not self._ended.wait(due):
            with self._lock:
                silent = time.monotonic() - self._since
                due = self._every - silent % self._every
                if silent >= self._every and not self._ended.is_set():
                    with suppress(OSError):  # the terminal is gone
                        self._say(silent)
