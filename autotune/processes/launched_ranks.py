"""Processes that a launcher of the user's starts, perhaps on several hosts.

A launcher gets the words of its command, then a program that it can start as such or as a Python
script: launchers do the one or the other. All that the program needs is in the trial's folder.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from autotune.configuration.job import Job
from autotune.system.launched import TELLS, Started, started_from
from autotune.system.process_tree import ProcessTree
from autotune.system.trial_folder import TrialFolder
from autotune.values.outcome import Lost

PATIENCE_SECONDS = 120.0
"""Seconds in which all processes have to begin once one has."""
_END_BYTES = 1 << 16
_SHOWN = 300
# Words of Python, of a shell and of our own program for a path that is not there.
_UNSEEN = ("No such file or directory", "can't open file", "does not see")
_HINT = (
    " All hosts have to see the folder of the study, as on a shared file system: call autotune in "
    "one that they do."
)
# The first lines are for a shell, and a string to Python: long paths do not fit behind a `#!`.
_PROGRAM = """#!/bin/sh
'''exec' {python} "$0" "$@"
'''
import os, socket, sys

folder, variables = {folder!r}, {variables!r}
try:
    os.chdir(folder)
except OSError as error:
    sys.exit(f"{tells}{{socket.gethostname()}} does not see {{folder}}: {{error.strerror}}")
os.environ.update(variables)
sys.path[:1] = [folder, *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
if __name__ == "__main__":
    from autotune.child.main import main

    main()
"""


def write_program(files: TrialFolder, python: Path, environ: Mapping[str, str]) -> Path:
    """Write the program that a launcher starts as each rank; return its path.

    It goes to the working directory of this process and sets the variables, because few launchers
    do so on other hosts.
    """
    text = _PROGRAM.format(
        python=shlex.quote(str(python)),
        folder=str(Path.cwd()),
        variables=dict(environ),
        tells=TELLS,
    )
    files.program.write_text(text, encoding="utf-8")
    files.program.chmod(0o700)
    return files.program


@dataclass
class LaunchedRanks:
    """The processes that a launcher starts for one job."""

    job: Job
    files: TrialFolder
    _known: dict[int, Started] = field(default_factory=dict, init=False)
    _first_at: float | None = field(default=None, init=False)

    @property
    def size(self) -> int | None:
        """Number of processes; None until one has told it."""
        return self.job.processes or next((one.size for one in self._known.values()), None)

    @property
    def missing(self) -> list[int]:
        """Ranks that have not begun, as far as their number is known."""
        return [rank for rank in range(self.size or 0) if rank not in self._known]

    @property
    def elsewhere(self) -> list[Started]:
        """Processes on other hosts."""
        return [one for one in self._known.values() if not one.is_here]

    @property
    def lacking(self) -> str:
        """Ranks that have not begun, as an addition to a phase; empty if all have."""
        return "".join(f"; rank {rank} has not begun" for rank in self.missing)

    def look(self) -> Lost | None:
        """Look for processes that have begun; return the reason if others should have by now."""
        for rank in self.missing or ([0] if not self._known else ()):
            if (found := started_from(self.files.of_rank(rank).place)) is not None:
                self._known[rank] = found
        if self._known and self._first_at is None:
            self._first_at = time.monotonic()
        if (lost := self._another_size()) is not None:
            return lost
        waited = 0.0 if self._first_at is None else time.monotonic() - self._first_at
        if self.missing and waited > PATIENCE_SECONDS:
            return Lost(f"{self._said(f'within {PATIENCE_SECONDS:g} s')}; {self._last_words()}")
        return None

    def of_exit(self, code: int | None) -> Lost | None:
        """Return why there is no outcome once the launcher has ended; None if the ranks know."""
        if (found := self.look()) is not None:
            return found
        if self._known and not self.missing:
            return None
        return Lost(f"{self._said(f'and ended with code {code}')}; {self._last_words()}")

    def kill_here(self) -> None:
        """Kill the processes on this host, with all that they have started."""
        for one in self._known.values():
            if one.is_here:
                for pid in (one.pid, *ProcessTree(one.pid).descendants()):
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)

    def _another_size(self) -> Lost | None:
        """Return the reason if there are more or fewer processes than in the trials before."""
        asked = self.job.processes
        other = next((one.size for one in self._known.values() if one.size != asked), None)
        if not asked or other is None:
            return None
        return Lost(f"the launcher starts {other} processes, and started {asked} before")

    def _said(self, how: str) -> str:
        if not self._known:
            return f"the launcher started no process {how}"
        told = f"{len(self._known)} of {self.size} processes"
        names = ", ".join(map(str, self.missing))
        return f"the launcher started {told} {how}, without rank {names}"

    def _last_words(self) -> str:
        """Return the launcher's last words, and what to do if a host does not see the folder."""
        lines = [line for line in self._lines() if any(map(str.isalpha, line))]
        own = [line.removeprefix(TELLS) for line in lines if line.startswith(TELLS)]
        unseen = [line for line in lines if any(word in line for word in _UNSEEN)]
        last = (own or unseen or lines or ["nothing"])[-1][:_SHOWN]
        where = f"log: {self.files.stderr.name}"
        return f"it said: {last} ({where}).{_HINT if unseen else ''}"

    def _lines(self) -> Iterator[str]:
        for log in (self.files.stdout, self.files.stderr):
            with suppress(OSError):
                text = log.read_bytes()[-_END_BYTES:].decode(errors="replace")
                yield from map(str.strip, text.splitlines())
