"""The baseline's runs as a study notes them: what every claim, and a diagnosis, is held against."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import TypeAdapter

from autotune.measurement import Measurement
from autotune.tuning.storing.study import TuningStudy

Runs = tuple[Measurement, ...]
_NOTE = "baseline_runs"


def note_runs(study: TuningStudy, runs: Runs) -> None:
    """Keep them for whoever continues the study or works at it."""
    study.note(_NOTE, [asdict(run) for run in runs])


def noted_runs(study: TuningStudy) -> Runs | None:
    """The runs of the baseline that the study already has."""
    noted = study.noted(_NOTE)
    return None if noted is None else TypeAdapter(Runs).validate_python(noted)
