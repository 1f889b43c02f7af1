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


@contextmanager
def interrupts(stop: Stop) -> Iterator[None]:
    """Turn signals into requests to `stop`, or end the block, while it runs."""
    count = 0

    def interrupt(*_: object) -> None:
        nonlocal count
        count += 1
        if count >= _AT_ONCE:
            os._exit(INTERRUPTED)
        if count == 1:
            _say(_FINISHING)
            stop.request()
            return
        _say(_ENDING)
        stop.request_at_once()
        raise KeyboardInterrupt

    def terminate(*_: object) -> NoReturn:
        stop.request_at_once()
        _terminate()

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate, signal.SIGHUP: terminate}
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
