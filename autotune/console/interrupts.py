"""Translate signals into stop requests of a search, or into the end of a shorter command.

In a search, the first Ctrl-C lets the running trial finish, the second ends it. The third ends this
process at once, and its children with it. SIGTERM and SIGHUP act like the second Ctrl-C. Ignored
signals stay ignored, as under `nohup`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from autotune.process.stop import Stop

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of a command that SIGINT or SIGTERM ended, as shells have them."""
_FINISHING = "\nFinishing the running trial, then stopping. Press Ctrl-C again to stop now.\n"
_ENDING = "\nStopping the running trial. Press Ctrl-C again to exit at once.\n"
_AT_ONCE = 3


class _Interrupts:
    """Signal handlers that count interrupts."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._count = 0

    def interrupt(self, *_: object) -> None:
        self._count += 1
        if self._count >= _AT_ONCE:
            os._exit(INTERRUPTED)
        if self._count == 1:
            _say(_FINISHING)
            self._stop.request()
            return
        _say(_ENDING)
        self._stop.request_at_once()
        raise KeyboardInterrupt

    def terminate(self, *_: object) -> NoReturn:
        self._stop.request_at_once()
        _terminate()


@contextmanager
def interrupts(stop: Stop) -> Iterator[None]:
    """Turn signals into requests to `stop`, or end the block, while it runs."""
    heard = _Interrupts(stop)
    handlers = {
        signal.SIGINT: heard.interrupt,
        signal.SIGTERM: heard.terminate,
        signal.SIGHUP: heard.terminate,
    }
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def unwind_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit, so that the running child is killed on the way out."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(*_: object) -> NoReturn:
    sys.exit(TERMINATED)


def _say(text: str) -> None:
    """Write past `sys.stderr`, which the signal may have interrupted within a line."""
    with suppress(OSError):
        os.write(2, text.encode())
