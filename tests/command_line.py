"""The command line in this process: fast, for commands that start no children or stub runners."""

import io
import signal
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from autotune.cli import main


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str


def command(*words: object) -> Done:
    """Give `autotune WORDS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["autotune", *map(str, words)]
    code, on_sigterm = 0, signal.getsignal(signal.SIGTERM)
    with patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            signal.signal(signal.SIGTERM, on_sigterm)
    return Done(code, out.getvalue(), err.getvalue())


def told(folder: Path, *words: object) -> Done:
    """Give a command in this process, in a folder."""
    with chdir(folder):
        return command(*words)
