"""Trials for programs: one JSON object, or CSV with a row for each trial."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from autotune.configuration.constraints import CONSTRAINTS
from autotune.configuration.training_config import TrainingConfig, with_own
from autotune.knobs import KNOBS
from autotune.knobs.base import spelled
from autotune.report.data import ReportData, failure_kind
from autotune.study.facts import FinishedTrial
from autotune.values.text import SCHEMA_VERSION, readable

_OF_RUN = ("joules_per_sample", "machine_speed", "compile_seconds")
_OF_TRIAL = ("samples_per_second", "peak_memory_bytes", "quality", "seconds", "assumed_samples")


def json_text(data: ReportData) -> str:
    """Return result, trials, failures and time as JSON; non-finite numbers are null."""
    # As `autotune search --json` words it; "none" without a confirmation.
    answer = "none" if data.best is None else "keep" if data.best.keeps_baseline else "faster"
    told = {
        "schema_version": SCHEMA_VERSION,
        "study": data.archive.name,
        "storage": data.archive.storage,
        "objective": data.objective,
        "remarks": list(data.remarks),
        "answer": answer,
        "best": data.best,
        "searched": data.searched,
        "leader": None if data.incumbent is None else data.incumbent.number,
        "memory_limit_bytes": data.memory_limit_bytes,
        "pareto_best": [trial.number for trial in data.pareto_best],
        "trials": [_trial(data, trial) for trial in data.trials],
        "open_trials": [
            {**asdict(one), "config": one.config and one.config.as_dict()}
            for one in data.archive.open
        ],
        "confirmation": data.archive.notes.confirmation or {},
        "failures": data.failures,
        "phases": data.phases,
        "confirmed_rates": data.rates,
    }
    return TypeAdapter(Any).dump_json(told, indent=1).decode() + "\n"


def _trial(data: ReportData, trial: FinishedTrial) -> dict[str, Any]:
    details, run = trial.details, trial.details.measurement
    of_run = {name: getattr(run, name, None) for name in _OF_RUN}
    return {
        "number": trial.number,
        "config": trial.config.as_dict(),
        "feasible": trial.verdict.feasible,
        "outcome": details.outcome,
        "value": trial.verdict.value,
        "ratio_to_baseline": data.ratio(trial),
        "samples_per_second_ci95": run and [*map(readable, run.samples_per_second_interval)],
        **{name: getattr(details, name) for name in _OF_TRIAL},
        **{name: told and readable(told) for name, told in of_run.items()},
        "margins": dict(trial.verdict.margins),
        "flags": run and run.flags,
        "reason": trial.verdict.reason,
    }


def csv_text(data: ReportData) -> str:
    """Return a line of names, then a line per trial.

    Settings are as YAML spells them. Unknown values are empty. The user's own knobs follow ours.
    """
    configs = [one.config for one in data.trials]
    configs += [one.config for one in data.archive.open if one.config is not None]
    settings = with_own(KNOBS, configs)
    rows: list[dict[str, Any]] = [_row(data, trial, settings) for trial in data.trials]
    rows += [
        {
            "trial": one.number,
            "state": one.state,
            **_cells(one.config, settings),
            "reason": one.reason,
        }
        for one in data.archive.open
    ]
    written = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row) or ["trial"]
    table = csv.DictWriter(written, names, lineterminator="\n")
    table.writeheader()
    table.writerows(sorted(rows, key=lambda row: row["trial"]))
    return written.getvalue()


def _row(data: ReportData, trial: FinishedTrial, settings: Sequence[str]) -> dict[str, Any]:
    """Return the cells of a trial with a verdict, by their columns: those of JSON, flat."""
    told = _trial(data, trial)
    low, high = told["samples_per_second_ci95"] or (None, None)
    return {
        "trial": trial.number,
        "state": "finished",
        "outcome": "measured" if trial.verdict.feasible else failure_kind(trial),
        "feasible": told["feasible"],
        **_cells(trial.config, settings),
        **{name: told[name] for name in ("value", "ratio_to_baseline", _OF_TRIAL[0])},
        "samples_per_second_low": low,
        "samples_per_second_high": high,
        **{name: told[name] for name in (*_OF_RUN, *_OF_TRIAL[1:])},
        **{f"{name}_margin": told["margins"].get(name) for name in CONSTRAINTS},
        "pareto_best": trial in data.pareto_best,
        "flags": " ".join(told["flags"] or ()),
        "reason": told["reason"],
    }


def _cells(config: TrainingConfig | None, settings: Sequence[str]) -> dict[str, int | str]:
    """Return settings, numbers as they are, others as text, so that null is no missing value."""
    values = {} if config is None else {name: config[name] for name in settings}
    return {name: v if type(v) is int else spelled(v) for name, v in values.items()}
