"""Names of the files of one child process; only this module joins these paths."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

FIRST_STEPS = "the script's first optimizer steps"
"""Phase of a script after its first optimizer step."""
EVALUATION = "evaluation"
"""Phase of an accuracy probe that evaluates, after its training."""
NUMERICS_CHECK = "numerics check"
"""Phase that compares a configuration's numerics with the reference's."""
TEMPORARY = "temporary"
"""Word for a folder that is removed when the trial has ended."""
TIMED = frozenset({"measure", "limits", "diagnosis"})
"""Phases with timed blocks, during which the parent does not touch the child."""

_WORKDIR = "workdir-"


@dataclass(frozen=True, slots=True)
class TrialFolder:
    """Folder of one trial: job, outcome and logs, all readable with `cat`."""

    path: Path

    @property
    def job(self) -> Path:
        """Return the path of the job."""
        return self.path / "job.json"

    @property
    def outcome(self) -> Path:
        """Return the path of the child's outcome; a child that died writes none."""
        return self.path / "outcome.json"

    @property
    def stdout(self) -> Path:
        """Return the path of the output of the user's code."""
        return self.path / "stdout.log"

    @property
    def stderr(self) -> Path:
        """Return the path of warnings, tracebacks and, after a hang, the stacks of all threads."""
        return self.path / "stderr.log"

    @property
    def launch(self) -> Path:
        """Return the path of the note on the start: forked, or a fresh interpreter and why."""
        return self.path / "launch"

    @property
    def phase(self) -> str:
        """Return the last phase of the child; "start" before the first one."""
        try:
            return (self.path / "phase").read_text(encoding="utf-8")
        except OSError:
            return "start"

    def workdir_in(self, place: str) -> Path:
        """Make a new folder for the script to run in, in `place` or, if "temporary", in here.

        Raises:
            OSError: it cannot be made.
        """
        if place == TEMPORARY:
            return Path(mkdtemp(prefix=_WORKDIR, dir=self.path))
        return Path(mkdtemp(prefix=f"{self.path.parent.name}-{self.path.name}-", dir=place))

    def remove_workdirs(self) -> None:
        """Remove the temporary folders that the script ran in."""
        for path in self.path.glob(f"{_WORKDIR}*"):
            shutil.rmtree(path, ignore_errors=True)

    def enter_phase(self, name: str) -> None:
        """Note the phase that the child enters."""
        (self.path / "phase").write_text(name, encoding="utf-8")


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can read, unless it exists.

    Raises:
        OSError: the folder cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_atomically(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file beside and rename it, so that a reader finds the old or the new one, whole.

    The umask applies to `mode`.

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
