"""Trials as a table: one row per trial, finished or not."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from autotune.configuration.training_config import with_own
from autotune.knobs import KNOBS
from autotune.knobs.base import Value, spelled
from autotune.report.data import ReportData
from autotune.report.totals import failure_kind
from autotune.study.archive import OpenTrial
from autotune.study.finished import FinishedTrial

_FIRST = ("trial", "state", "outcome", "feasible")
_LAST = (
    "value",
    "ratio_to_baseline",
    "samples_per_second",
    "samples_per_second_low",
    "samples_per_second_high",
    "tokens_per_second",
    "joules_per_sample",
    "machine_speed",
    "peak_memory_bytes",
    "quality",
    "compile_seconds",
    "seconds",
    "memory_margin",
    "accuracy_margin",
    "ran_margin",
    "pareto_best",
    "flags",
    "reason",
)
_DETAILS = (
    "samples_per_second",
    "tokens_per_second",
    "joules_per_sample",
    "machine_speed",
    "peak_memory_bytes",
    "quality",
    "compile_seconds",
    "seconds",
)


def csv_text(data: ReportData) -> str:
    """Return the table as CSV: a line of names, then a line per trial, unknown values empty."""
    written = io.StringIO()
    table = csv.DictWriter(written, columns(data), lineterminator="\n")
    table.writeheader()
    table.writerows(rows(data))
    return written.getvalue()


def columns(data: ReportData) -> tuple[str, ...]:
    """Return the names of the columns; the user's own knobs follow the others."""
    return (*_FIRST, *_settings(data), *_LAST)


def rows(data: ReportData) -> list[dict[str, Any]]:
    """Return the trials in order; settings as YAML spells them, unknown values left out or None."""
    settings = _settings(data)
    found = [_finished(data, trial, settings) for trial in data.trials]
    found += [_open(trial) for trial in data.archive.open]
    return sorted(found, key=lambda row: row["trial"])


def _settings(data: ReportData) -> tuple[str, ...]:
    begun = (trial.config for trial in data.archive.open if trial.config is not None)
    return tuple(with_own(KNOBS, (*(trial.config for trial in data.trials), *begun)))


def _finished(data: ReportData, trial: FinishedTrial, settings: Iterable[str]) -> dict[str, Any]:
    details, verdict = trial.details, trial.verdict
    low, high = details.samples_per_second_ci95 or (None, None)
    return {
        "trial": trial.number,
        "state": "finished",
        "outcome": "measured" if verdict.feasible else failure_kind(trial),
        "feasible": verdict.feasible,
        **{name: _cell(trial.config[name]) for name in settings},
        **{name: getattr(details, name) for name in _DETAILS},
        **{f"{name}_margin": margin for name, margin in verdict.margins.items()},
        "pareto_best": trial in data.pareto_best,
        "value": verdict.value,
        "ratio_to_baseline": data.ratio(trial),
        "samples_per_second_low": low,
        "samples_per_second_high": high,
        "flags": " ".join(details.flags or ()),
        "reason": verdict.reason,
    }


def _open(trial: OpenTrial) -> dict[str, Any]:
    settings = {} if trial.config is None else trial.config.as_dict()
    return {
        "trial": trial.number,
        "state": trial.state,
        **{name: _cell(value) for name, value in settings.items()},
        "reason": trial.reason,
    }


def _cell(value: Value) -> int | str:
    """Return numbers as they are, other values as text, so that null is no missing value."""
    return value if type(value) is int else spelled(value)
