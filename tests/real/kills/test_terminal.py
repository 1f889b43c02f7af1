"""A search on a real terminal, stopped by Ctrl-C."""

import os
import signal
import subprocess
import sys

from children import HURRIED, WORKLOADS, nobody_is_left, wait_until
from terminals import Terminal

INTERRUPTED = 130
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


def test_ctrl_c_ends_a_search_and_leaves_the_terminal_as_it_was(tmp_path):
    terminal = Terminal(columns=80)
    before = terminal.settings
    environ = {k: v for k, v in os.environ.items() if k not in {"CI", "NO_COLOR", "COLUMNS"}}
    search = subprocess.Popen(
        [sys.executable, HURRIED, "search", WORKLOADS / "plain.py"],
        cwd=tmp_path,
        env={**environ, "TERM": "xterm-256color"},
        stdin=terminal.far,
        stdout=terminal.far,
        stderr=terminal.far,
        start_new_session=True,
        preexec_fn=lambda: _control(terminal.far),  # noqa: PLW1509
    )
    begun = tmp_path / "studies" / "plain" / "trials" / "0000" / "0" / "job.json"
    assert wait_until(begun.exists, seconds=60), terminal.so_far
    assert wait_until(lambda: "baseline" in terminal.so_far, seconds=10)
    terminal.type("\x03")
    assert search.wait(timeout=60) == INTERRUPTED
    assert terminal.settings == before
    assert nobody_is_left(tmp_path)
    text = terminal.seen()
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)
    assert "To continue:" in text
    assert "Traceback" not in text


def _control(descriptor):
    """Make the terminal the one whose Ctrl-C reaches this process."""
    import fcntl
    import termios

    signal.signal(signal.SIGINT, signal.default_int_handler)
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
