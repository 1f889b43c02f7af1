"""The outcome of several processes that trained together, of which one or more failed.

Where one fails, the others fail for it: their connections break, or the launcher ends them. So the
cause is looked for: a process that a signal killed, else the process that failed first.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autotune.system.trial_folder import TrialFolder
from autotune.values.outcome import (
    Answer,
    Crashed,
    Failure,
    NotApplied,
    OutOfMemory,
    TimedOut,
    TrialOutcome,
    as_failure,
    describe,
    outcome_from_json,
)
from autotune.values.strict_json import read_some


def has_failed(files: TrialFolder) -> bool:
    """Return True once a process beside rank 0 has told that it failed."""
    return any(other.outcome.exists() for other in files.others)


def phase_of_ranks(files: TrialFolder) -> str:
    """Return the phase that rank 0 entered last, with the ranks that are in another one."""
    own = files.phase
    apart = (f"; rank {one.rank} during {one.phase}" for one in files.others if one.phase != own)
    return own + "".join(apart)


def outcome_of_ranks(files: TrialFolder, found: TrialOutcome | None) -> TrialOutcome | None:
    """Return the outcome of all processes, which names the rank that failed and its log.

    Args:
        files: the trial's folder, when its processes have ended.
        found: the outcome that rank 0 or the runner told; None if there is none. A result of rank
            0 holds unless another rank failed, other than by losing those that were done.
    """
    is_of_runner = found is not None and not files.outcome.exists()
    told = _told(files)
    is_whole = isinstance(found, Answer) and all(map(_tells_of_lost_peer, told.values()))
    if is_of_runner or is_whole:
        return found
    for rank, code in _exit_codes(files.ended):
        # A library may abort for a lost connection; nothing else kills a rank for another's fault.
        is_cause = code != -signal.SIGABRT or all(map(_tells_of_lost_peer, told.values()))
        if code < 0 and -code != signal.SIGTERM and is_cause:
            return _killed(files.of_rank(rank), -code)
    if (silent := _silent(files, told)) is not None:
        return silent
    for one, failure in told.items():
        return _named(one, failure)
    return found


def _silent(files: TrialFolder, told: Mapping[TrialFolder, Failure]) -> Failure | None:
    """Return the end of a rank that told nothing, if others told of a lost peer at most."""
    codes = dict(_exit_codes(files.ended))
    known = codes.keys() | ({one.rank for one in (files, *files.others)} if told else set())
    untold = known - {one.rank for one in told}
    # A launcher ends with SIGTERM those that are left, perhaps before they have told anything.
    for rank in sorted(untold, key=lambda rank: (codes.get(rank) == -signal.SIGTERM, rank)):
        if all(map(_tells_of_lost_peer, told.values())):
            how = f"with code {codes[rank]} and " if rank in codes else ""
            where = _place(files.of_rank(rank))
            return Crashed(f"rank {rank} ended {how}without a result; {where}")
    return None


def _told(files: TrialFolder) -> dict[TrialFolder, Failure]:
    """Return the failures that ranks told, the first one first."""
    found = [one for one in (files, *files.others) if one.outcome.exists()]
    found.sort(key=lambda one: one.outcome.stat().st_mtime_ns)
    outcomes = {one: outcome_from_json(read_some(one.outcome)) for one in found}
    return {one: as_failure(out) for one, out in outcomes.items() if not isinstance(out, Answer)}


def _tells_of_lost_peer(failure: Failure) -> bool:
    return "onnection" in describe(failure)


def _killed(rank: TrialFolder, number: int) -> Failure:
    if number == signal.SIGBUS:
        return OutOfMemory("shared", f"rank {rank.rank}: bus error: /dev/shm is full")
    name = signal.Signals(number).name
    return Crashed(f"rank {rank.rank} was killed by {name}; {_place(rank)}")


def _named(rank: TrialFolder, failure: Failure) -> Failure:
    """Return the failure with the rank and its log in its words."""
    if isinstance(failure, TimedOut | NotApplied):
        return failure
    return replace(failure, detail=f"rank {rank.rank}: {failure.detail} ({_place(rank)})")


def _place(rank: TrialFolder) -> str:
    return f"log: {rank.stderr.name}"


def _exit_codes(report: Path) -> list[tuple[int, int]]:
    """Return the ranks whose processes failed, with their exit codes; empty without a report."""
    try:
        told = json.loads(report.read_text(encoding="utf-8"))
        return sorted((int(rank), int(code)) for rank, code in told.items())
    except (OSError, ValueError, AttributeError):
        return []
