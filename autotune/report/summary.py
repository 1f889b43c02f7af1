"""Report as one JSON object for programs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from autotune.report.data import ReportData
from autotune.report.effects import knob_effects
from autotune.report.importance import aliases, importances
from autotune.report.totals import failure_kinds, phases
from autotune.study.archive import OpenTrial
from autotune.study.facts import as_json
from autotune.study.finished import FinishedTrial

SCHEMA_VERSION = 1
_DETAILS = (
    "outcome",
    "samples_per_second",
    "samples_per_second_ci95",
    "tokens_per_second",
    "joules_per_sample",
    "machine_speed",
    "peak_memory_bytes",
    "quality",
    "compile_seconds",
    "seconds",
    "flags",
)


def summary(data: ReportData) -> str:
    """Return result, trials, effects, failures and time as JSON; non-finite numbers are null."""
    return json.dumps(_finite(_summary(data)), indent=1, allow_nan=False)


def _summary(data: ReportData) -> dict[str, Any]:
    baseline = data.baseline_config
    effects = () if baseline is None else knob_effects(data.trials, baseline)
    important = importances(data.trials)
    together = {name: others for name, others in aliases(data.trials).items() if others}
    return {
        "schema_version": SCHEMA_VERSION,
        "study": data.archive.name,
        "storage": data.archive.storage,
        "objective": data.objective,
        "remarks": list(data.remarks),
        "answer": _answer(data),
        "best": None if data.best is None else data.best.model_dump(mode="json"),
        "searched": None if data.searched is None else data.searched.model_dump(mode="json"),
        "leader": None if data.incumbent is None else data.incumbent.number,
        "memory_limit_bytes": data.memory_limit_bytes,
        "pareto_best": [trial.number for trial in data.pareto_best],
        "trials": [_trial(data, trial) for trial in data.trials],
        "open_trials": [_open(trial) for trial in data.archive.open],
        "effects": [asdict(effect) for effect in effects],
        "importances": important,
        "importances_together": {name: together[name] for name in important if name in together},
        "confirmation": as_json(data.confirmation) or {},
        "failures": [asdict(kind) for kind in failure_kinds(data)],
        "phases": [asdict(phase) for phase in phases(data)],
    }


def _answer(data: ReportData) -> str:
    """Return the result as `autotune search --json` words it; "none" without a confirmation."""
    if data.best is None:
        return "none"
    return "keep" if data.best.keeps_baseline else "faster"


def _trial(data: ReportData, trial: FinishedTrial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "config": trial.config.as_dict(),
        "feasible": trial.verdict.feasible,
        "value": trial.verdict.value,
        "ratio_to_baseline": data.ratio(trial),
        "margins": dict(trial.verdict.margins),
        "reason": trial.verdict.reason,
        **{name: getattr(trial.details, name) for name in _DETAILS},
    }


def _open(trial: OpenTrial) -> dict[str, Any]:
    config = None if trial.config is None else trial.config.as_dict()
    return {
        "number": trial.number,
        "state": trial.state,
        "config": config,
        "reason": trial.reason,
    }


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(part) for name, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
