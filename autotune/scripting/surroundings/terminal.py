"""Standard input of a script's run: a terminal without input."""

from __future__ import annotations

import os
from contextlib import suppress

_ROWS, _COLUMNS = 24, 80


def give_terminal() -> None:
    """Make standard input of this process a terminal of 24 rows that is always at its end.

    Scripts that ask for the width of a terminal, as with `stty size`, end where there is none. One
    that waits for an answer gets none, as from /dev/null. A system without terminals keeps that.
    """
    with suppress(ImportError, OSError):
        import termios

        _ours, theirs = os.openpty()  # ours stays open as long as this process lives
        flags = termios.tcgetattr(theirs)
        flags[3] &= ~(termios.ICANON | termios.ECHO)
        flags[6][termios.VMIN], flags[6][termios.VTIME] = 0, 0
        termios.tcsetattr(theirs, termios.TCSANOW, flags)
        termios.tcsetwinsize(theirs, (_ROWS, _COLUMNS))
        os.dup2(theirs, 0)
        os.close(theirs)
