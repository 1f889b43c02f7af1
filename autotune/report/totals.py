"""Account of a study: failed trials by kind, seconds by phase, wait and memory of each process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.report.data import ReportData, readable_note
from autotune.study.facts import ACCURACY, DIAGNOSIS, VALIDATION
from autotune.study.finished import FinishedTrial
from autotune.values.measurement import Measurement
from autotune.values.outcome import wait_shares, waiting_text
from autotune.values.text import size

_LABELS = {
    "out_of_memory": "out of memory",
    "timed_out": "no result in time",
    "crashed": "crashed",
    "non_finite": "the loss became NaN or infinite",
    "rejected": "refused by PyTorch, the compiler or the dataset",
    "not_applied": "a setting did not take effect",
    "user_error": "model.py raised an error",
    "memory": "over the memory limit",
    "accuracy": "not accurate enough",
    "ran": "never steady, or its accuracy probe failed",
    "lost": "lost to the machine or interrupted",
}


@dataclass(frozen=True, slots=True)
class FailureKind:
    """Trials that are infeasible or lost for the same kind of reason."""

    kind: str
    label: str
    trials: tuple[int, ...]
    example: str
    """First line of the first trial's reason."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Seconds spent on one part of a search."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RankTable:
    """A row for each rank: wait and memory for each of the headed sides."""

    sides: tuple[str, ...]
    """Names of the settings; two columns are of each."""
    rows: tuple[tuple[str, ...], ...]
    """Cells of each rank, by rank."""
    remarks: tuple[str, ...]
    """Sentences on ranks that the others wait for."""


def failure_kinds(data: ReportData) -> list[FailureKind]:
    """Return infeasible and lost trials by kind, the most frequent first."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for trial in data.trials:
        if not trial.verdict.feasible:
            found[failure_kind(trial)].append((trial.number, trial.verdict.reason))
    for lost in data.archive.open:
        if lost.state == "lost":
            found["lost"].append((lost.number, lost.reason or "the process that ran it is gone"))
    kinds = [
        FailureKind(
            kind,
            _LABELS.get(kind, kind),
            tuple(number for number, _ in cases),
            _first_line(cases[0][1]),
        )
        for kind, cases in found.items()
    ]
    return sorted(kinds, key=lambda one: -len(one.trials))


def failure_kind(trial: FinishedTrial) -> str:
    """Return the kind of a trial's outcome; of a measured one, its most violated constraint."""
    outcome = trial.details.outcome or "measured"
    if outcome != "measured":
        return outcome
    margins = trial.verdict.margins
    return max(margins, key=lambda name: margins[name])


def phases(data: ReportData) -> list[Phase]:
    """Return the seconds of each phase, as far as the study recorded them."""
    spent: dict[str, float] = defaultdict(float)
    for trial in data.trials[1:]:
        seconds, run = trial.details.seconds or 0.0, trial.details.measurement
        parts = {"trials that gave no number": seconds} if run is None else _parts(run)
        for name, part in parts.items():
            spent[name] += part
        spent["trials: starting, accuracy, drift"] += max(0.0, seconds - sum(parts.values()))
    if data.baseline is not None:
        own = data.baseline.details.seconds or 0.0
        noted = readable_note(lambda: data.archive.notes.phase_seconds) or {}
        first = {
            "your settings: timing": own,
            "your settings: accuracy": noted.get(ACCURACY, 0.0),
            "diagnosis": noted.get(DIAGNOSIS, 0.0),
            "validation of incumbents": noted.get(VALIDATION, 0.0),
        }
        spent = defaultdict(float, {**first, **spent})
    spent["confirmation"] = 0.0 if data.confirmation is None else data.confirmation.seconds
    return [Phase(name, seconds) for name, seconds in spent.items() if seconds > 0]


def _parts(run: Measurement) -> dict[str, float]:
    """Return the seconds of a measurement by part, without the start of the process."""
    blocks = sum(block.seconds for block in run.blocks)
    return {
        "trials: building model and dataset": max(0.0, run.build_seconds - run.shared_seconds),
        "trials: warming up and compiling": sum(run.warmup_step_seconds),
        "trials: timing": blocks + sum(run.boundary_seconds),
    }


def _first_line(text: str) -> str:
    return (text.splitlines() or ["no reason was noted"])[0]


def rank_table(data: ReportData) -> RankTable | None:
    """Return the table of a study of several processes; None for another, or if it is not told."""
    sides = list(_sides(data))
    if not sides:
        return None
    columns = [_cells(run) for _, run in sides]
    said = ((name, waiting_text(run)) for name, run in sides)
    return RankTable(
        tuple(name for name, _ in sides),
        tuple(
            tuple(cell for pair in pairs for cell in pair) for pairs in zip(*columns, strict=True)
        ),
        tuple(f"{name}: {text}." for name, text in said if text),
    )


def _sides(data: ReportData) -> Iterator[tuple[str, Measurement]]:
    """Yield the timings in the search that tell their ranks, each with the name of its settings."""
    answer = None if data.answer is data.baseline else data.answer
    for name, trial in (("Yours", data.baseline), ("The answer", answer)):
        run = None if trial is None else trial.details.measurement
        if run is not None and run.ranks:
            yield name, run


def _cells(run: Measurement) -> list[tuple[str, str]]:
    shares = wait_shares(run)
    return [
        (f"{100 * share:.1f} %", size(rank.peak_memory_bytes))
        for share, rank in zip(shares, run.ranks, strict=True)
    ]
