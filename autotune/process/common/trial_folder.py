"""Names of the files of one child process; only this module joins these paths."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

FIRST_STEPS = "the script's first optimizer steps"
"""Phase of a script after its first optimizer step."""
EVALUATION = "evaluation"
"""Phase of an accuracy probe that evaluates, after its training."""
NUMERICS_CHECK = "numerical check"
"""Phase that compares a configuration's numerics with the reference's."""
TEMPORARY = "temporary"
"""Word for a folder that is removed when the trial has ended."""
MOST_BYTES = 1 << 19
"""Most bytes of an outcome. A timing with twenty thousand short epochs takes half of it."""
TIMED = frozenset({"measure", "diagnosis"})
"""Phases with timed blocks, during which the parent does not touch the child."""

_WORKDIR = "workdir-"


@dataclass(frozen=True, slots=True)
class TrialFolder:
    """Folder of one trial: job, outcome and logs, all readable with `cat`.

    Each of several processes that train together has an outcome, logs and a phase of its own; those
    of rank 0 are named as the ones of a single process are.
    """

    path: Path
    rank: int = 0

    @property
    def job(self) -> Path:
        """Return the path of the job."""
        return self.path / "job.json"

    @property
    def outcome(self) -> Path:
        """Return the path of the child's outcome; a child that died writes none."""
        return self._own("outcome", ".json")

    @property
    def stdout(self) -> Path:
        """Return the path of the output of the user's code."""
        return self._own("stdout", ".log")

    @property
    def stderr(self) -> Path:
        """Return the path of warnings, tracebacks and, after a hang, the stacks of all threads."""
        return self._own("stderr", ".log")

    @property
    def launch(self) -> Path:
        """Return the path of the note on the start: forked, or a fresh interpreter and why."""
        return self.path / "launch"

    @property
    def phase_file(self) -> Path:
        """Return the path of the child's last phase."""
        return self._own("phase")

    @property
    def phase(self) -> str:
        """Return the last phase of the child; "start" before the first one."""
        try:
            return self.phase_file.read_text(encoding="utf-8")
        except OSError:
            return "start"

    def workdir_in(self, place: str) -> Path:
        """Make a new folder for a script to run in, in `place` or, if "temporary", in here.

        Raises:
            OSError: it cannot be made.
        """
        if place == TEMPORARY:
            return Path(mkdtemp(prefix=_WORKDIR, dir=self.path))
        Path(place).mkdir(parents=True, exist_ok=True)
        return Path(mkdtemp(prefix=f"{self.path.parent.name}-{self.path.name}-", dir=place))

    @property
    def launcher_logs(self) -> Path:
        """Return the folder that torch's launcher makes for logs, which are not written there."""
        return self.path / "launcher"

    @property
    def program(self) -> Path:
        """Return the path of the program that a launcher starts as each rank.

        It has no suffix, so that it does not count as a module of the user's.
        """
        return self.path / "rank"

    @property
    def place(self) -> Path:
        """Return the path of the note on where a launcher has put this rank."""
        return self._own("place")

    def remove_workdirs(self) -> None:
        """Remove the temporary folders that the script ran in."""
        for path in self.path.glob(f"{_WORKDIR}*"):
            shutil.rmtree(path, ignore_errors=True)

    def enter_phase(self, name: str) -> None:
        """Note the phase that the child enters."""
        self.phase_file.write_text(name, encoding="utf-8")

    def of_rank(self, rank: int) -> TrialFolder:
        """Return the folder as one of several processes sees it."""
        return TrialFolder(self.path, rank)

    @property
    def others(self) -> tuple[TrialFolder, ...]:
        """Return the folder as each process other than rank 0 sees it, if it has begun."""
        names = (log.name for log in self.path.glob("stderr.rank*.log"))
        ranks = (int(name.removeprefix("stderr.rank").removesuffix(".log")) for name in names)
        return tuple(map(self.of_rank, sorted(ranks)))

    @property
    def logs(self) -> tuple[Path, ...]:
        """Return the paths of the logs of all processes."""
        return tuple(log for one in (self, *self.others) for log in (one.stdout, one.stderr))

    def remove_earlier(self) -> None:
        """Remove what an earlier run left: its outcomes and phases, and logs except rank 0's."""
        for other in self.others:
            for path in (other.stdout, other.stderr, other.outcome, other.phase_file, other.place):
                path.unlink(missing_ok=True)
        for path in (self.outcome, self.phase_file, self.place):
            path.unlink(missing_ok=True)

    def _own(self, stem: str, suffix: str = "") -> Path:
        middle = f".rank{self.rank}" if self.rank else ""
        return self.path / f"{stem}{middle}{suffix}"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can read, unless it exists.

    Raises:
        OSError: the folder cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write another file and rename it, so that a reader finds the old or the new one, whole.

    Raises:
        OSError: no space or no permission; the old file is untouched and nothing is left beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read_some(path: Path) -> bytes:
    """Return a file's content; of a larger one the beginning, which is no JSON.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)
