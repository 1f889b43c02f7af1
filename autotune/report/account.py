"""What did not work, by kind, and where the time went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.report.data import ReportData
from autotune.tuning.session import PHASE_SECONDS
from autotune.tuning.storing.study import FinishedTrial

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
    """One way in which trials did not qualify."""

    kind: str
    label: str
    trials: tuple[int, ...]
    example: str
    """The first line of what the first of them said."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Where time went."""

    name: str
    seconds: float


def failure_kinds(data: ReportData) -> list[FailureKind]:
    """Infeasible and lost trials by kind, the most frequent first."""
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
    """The outcome of what could not be measured; else the constraint that is violated most."""
    outcome = str(trial.details.get("outcome", "measured"))
    if outcome != "measured":
        return outcome
    margins = trial.verdict.margins
    return max(margins, key=lambda name: margins[name])


def phases(data: ReportData) -> list[Phase]:
    """Seconds by what they were spent on, as far as the study knows."""
    spent: dict[str, float] = defaultdict(float)
    for trial in data.trials[1:]:
        seconds = float(trial.details.get("seconds") or 0.0)
        run = trial.details.get("measurement")
        parts = _parts(run) if isinstance(run, dict) else {"trials that gave no number": seconds}
        for name, part in parts.items():
            spent[name] += part
        spent["trials: starting, accuracy, drift"] += max(0.0, seconds - sum(parts.values()))
    if data.baseline is not None:
        own = float(data.baseline.details.get("seconds") or 0.0)
        noted = data.archive.notes.get(PHASE_SECONDS, {})
        first = {
            "your settings: timing": own,
            "your settings: accuracy": float(noted.get("accuracy", 0.0)),
            "diagnosis": float(noted.get("diagnosis", 0.0)),
            "accuracy of what led": float(noted.get("proving", 0.0)),
        }
        spent = defaultdict(float, {**first, **spent})
    spent["confirmation"] = float(data.confirmation.get("seconds") or 0.0)
    return [Phase(name, seconds) for name, seconds in spent.items() if seconds > 0]


def _parts(run: Mapping[str, Any]) -> dict[str, float]:
    """Of one measurement, as it is stored; its start is what an interpreter is charged for."""
    blocks = sum(float(block["seconds"]) for block in run.get("blocks", ()))
    return {
        "trials: building model and dataset": run.get("build_seconds", 0.0),
        "trials: warming up and compiling": sum(run.get("warmup_step_seconds", ())),
        "trials: timing": blocks + sum(run.get("boundary_seconds", ())),
    }


def _first_line(text: str) -> str:
    return (text.splitlines() or ["no reason was noted"])[0]
