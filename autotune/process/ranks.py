"""The processes of one trial that train together: which have begun, and which of them failed.

Torch's launcher or one of the user's starts them, on this host. If one fails, the others fail
because of it: their connections break, or the launcher ends them. So the cause is looked for: a
process that a signal killed, else the process that failed first.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.configuration.job import Job
from autotune.process.common.child_ties import TELLS, Started, started_from
from autotune.process.common.process_tree import descendants
from autotune.process.common.trial_folder import TrialFolder, read_some
from autotune.values import outcome
from autotune.values.outcome import Crashed, Failure, Lost, TrialOutcome
from autotune.values.text import signal_name

PATIENCE_SECONDS = 120.0
"""Seconds in which all processes have to begin once one has."""
_END_BYTES = 1 << 16
_SHOWN = 300
# In what torch's launcher reports of each process that failed.
_FAILED = re.compile(r"^ *rank *: (\d+) .*\n *exitcode *: (-?\d+)", re.MULTILINE)
# The first lines are for a shell, and a string to Python: long paths do not fit behind a `#!`.
_PROGRAM = """#!/bin/sh
'''exec' {python} "$0" "$@"
'''
import os, sys

sys.path[0] = os.getcwd()
if __name__ == "__main__":
    from autotune.process.child.main import main

    main()
"""


def launch_command(job: Job, files: TrialFolder) -> Sequence[str]:
    """Return the user's or torch's launcher, and what it starts as each rank."""
    if job.launch:
        return *job.launch, str(write_program(files))
    options = ["--nproc-per-node", str(job.processes), "--log-dir", str(files.launcher_logs)]
    words = ["torch.distributed.run", "--standalone", *options, "-m", "autotune.process.child.main"]
    return sys.executable, "-m", *words


def write_program(files: TrialFolder) -> Path:
    """Write the program that a launcher starts as each rank; return its path.

    Launchers start it as such or as a Python script.
    """
    text = _PROGRAM.format(python=shlex.quote(sys.executable))
    files.program.write_text(text, encoding="utf-8")
    files.program.chmod(0o700)
    return files.program


@dataclass
class Ranks:
    """The processes that a launcher starts for one job."""

    job: Job
    files: TrialFolder
    _known: dict[int, Started] = field(default_factory=dict, init=False)
    _first_at: float | None = field(default=None, init=False)

    @property
    def missing(self) -> list[int]:
        """Ranks that have not begun, as far as their number is known."""
        size = self.job.processes or next((one.size for one in self._known.values()), 0)
        return [rank for rank in range(size) if rank not in self._known]

    @property
    def phase(self) -> str:
        """Phase that rank 0 entered last, with the ranks in another one or in none."""
        own, others = self.files.phase, self.files.others
        apart = (f"; rank {one.rank} during {one.phase}" for one in others if one.phase != own)
        lacking = (f"; rank {rank} has not begun" for rank in self.missing)
        return own + "".join(apart) + "".join(lacking)

    @property
    def has_failed(self) -> bool:
        """True once a process other than rank 0 has reported that it failed."""
        return any(other.outcome.exists() for other in self.files.others)

    def look(self) -> Lost | None:
        """Look for processes that have begun; return the reason if others should have by now."""
        for rank in self.missing or ([0] if not self._known else ()):
            if (found := started_from(self.files.of_rank(rank).place)) is not None:
                self._known[rank] = found
        if self._known and self._first_at is None:
            self._first_at = time.monotonic()
        asked = self.job.processes
        other = next((one.size for one in self._known.values() if one.size != asked), None)
        if asked and other is not None:
            told = f"the launcher started {other} processes, and {asked} before"
            return Lost(f"{told}. Let it start the same number each time")
        waited = 0.0 if self._first_at is None else time.monotonic() - self._first_at
        if self.missing and waited > PATIENCE_SECONDS:
            return self._lost(f"within {PATIENCE_SECONDS:g} s")
        return None

    def of_exit(self, code: int | None) -> Lost | None:
        """Return why there is no outcome once the launcher has ended; None if the ranks know."""
        if (found := self.look()) is not None:
            return found
        if self._known and not self.missing:
            return None
        return self._lost(f"and ended with code {code}")

    def kill(self) -> None:
        """Kill the processes, with all that they have started."""
        for one in self._known.values():
            for pid in (one.pid, *descendants(one.pid)):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _lost(self, how: str) -> Lost:
        """Return the launcher's failure to start all processes, with its last words."""
        told = f"the launcher started no process {how}"
        if self._known:
            names = ", ".join(map(str, self.missing))
            count = f"{len(self._known)} of {len(self._known) + len(self.missing)} processes"
            told = f"the launcher started {count} {how}, without rank {names}"
        lines = [line for line in self._lines() if any(map(str.isalpha, line))]
        own = [line.removeprefix(TELLS) for line in lines if line.startswith(TELLS)]
        last = (own or lines or ["nothing"])[-1][:_SHOWN]
        return Lost(f"{told}; it said: {last} (log: {self.files.stderr.name})")

    def _lines(self) -> Iterator[str]:
        for log in (self.files.stdout, self.files.stderr):
            yield from map(str.strip, _end_of(log).splitlines())


def outcome_of_ranks(files: TrialFolder, found: TrialOutcome | None) -> TrialOutcome | None:
    """Return the outcome of all processes, which names the rank that failed and its log.

    Args:
        files: the trial's folder, when its processes have ended.
        found: the outcome that rank 0 or the runner told; None if there is none. A result of rank
            0 holds unless another rank failed for a reason other than losing finished ranks.
    """
    is_of_runner = found is not None and not files.outcome.exists()
    told = _told(files)
    only_lost_peers = all("onnection" in outcome.describe(one) for one in told.values())
    if is_of_runner or (isinstance(found, outcome.Answer) and only_lost_peers):
        return found
    failed = _FAILED.findall(_end_of(files.stderr))  # as torch's launcher reports them
    codes = dict(sorted((int(rank), int(code)) for rank, code in failed))
    for rank, code in codes.items():
        # A library may abort for a lost connection; nothing else kills a rank for another's fault.
        is_cause = code != -signal.SIGABRT or only_lost_peers
        if -code == signal.SIGBUS:
            return outcome.OutOfMemory("shared", f"rank {rank}: bus error: /dev/shm is full")
        if code < 0 and -code != signal.SIGTERM and is_cause:
            log = _log(files.of_rank(rank))
            return Crashed(f"rank {rank} was killed by {signal_name(-code)}; {log}")
    untold = codes.keys() | ({one.rank for one in (files, *files.others)} if told else set())
    untold -= {one.rank for one in told}
    if untold and only_lost_peers:
        # A launcher ends the other ranks with SIGTERM, perhaps before they have reported anything.
        rank = min(untold, key=lambda rank: (codes.get(rank) == -signal.SIGTERM, rank))
        how = f"with code {codes[rank]} and " if rank in codes else ""
        return Crashed(f"rank {rank} ended {how}without a result; {_log(files.of_rank(rank))}")
    for one, failure in told.items():
        if isinstance(failure, outcome.TimedOut | outcome.NotApplied):
            return failure
        return replace(failure, detail=f"rank {one.rank}: {failure.detail} ({_log(one)})")
    return found


def _told(files: TrialFolder) -> dict[TrialFolder, Failure]:
    """Return the failures that ranks told, the first one first."""
    found = [one for one in (files, *files.others) if one.outcome.exists()]
    found.sort(key=lambda one: one.outcome.stat().st_mtime_ns)
    outcomes = {one: outcome.outcome_from_json(read_some(one.outcome)) for one in found}
    failed = {one: out for one, out in outcomes.items() if not isinstance(out, outcome.Answer)}
    return {one: outcome.as_failure(out) for one, out in failed.items()}


def _log(rank: TrialFolder) -> str:
    return f"log: {rank.stderr.name}"


def _end_of(log: Path) -> str:
    """Return the end of a log; empty if there is none."""
    with suppress(OSError):
        return log.read_bytes()[-_END_BYTES:].decode(errors="replace")
    return ""
