"""The files of one child process, by name; nobody else joins these paths."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path

FIRST_STEPS = "the script's first optimizer steps"
"""The phase of a script that has stepped."""


@dataclass(frozen=True, slots=True)
class TrialFolder:
    """A folder that `cat` can read: what was asked, what came out, what was printed."""

    path: Path

    @property
    def job(self) -> Path:
        """What the child is told."""
        return self.path / "job.json"

    @property
    def outcome(self) -> Path:
        """What the child says; missing where it died."""
        return self.path / "outcome.json"

    @property
    def stdout(self) -> Path:
        """Everything that the user's code printed."""
        return self.path / "stdout.log"

    @property
    def stderr(self) -> Path:
        """Warnings, tracebacks and, after a hang, the stacks of all threads."""
        return self.path / "stderr.log"

    @property
    def launch(self) -> Path:
        """How the child was started: forked, or as a fresh interpreter and why."""
        return self.path / "launch"

    @property
    def phase(self) -> str:
        """What the child was last busy with."""
        try:
            return (self.path / "phase").read_text(encoding="utf-8")
        except OSError:
            return "start"

    def enter_phase(self, name: str) -> None:
        """Say what the child is busy with from now on."""
        (self.path / "phase").write_text(name, encoding="utf-8")


def make_private(folder: Path) -> None:
    """Make a folder, where there is none, that only its owner can look into.

    Raises:
        OSError: it cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_atomically(path: Path, text: str, mode: int = 0o666) -> None:
    """Write beside and rename, so that a reader finds the old file or the new one, never a half.

    The new one's `mode` is less what the process masks.

    Raises:
        OSError: no space or no permission; the old file is untouched and nothing is left beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(beside, "x", encoding="utf-8", opener=partial(os.open, mode=mode)) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
