"""What a report tells: one value, read from a study, that every output draws from.

Nothing is assumed to be there. A search may be running, may have ended before anything was
confirmed, or may be known from its best.yaml alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from autotune.best import BestConfig, read_best
from autotune.config import TrainingConfig
from autotune.errors import UsageError
from autotune.intervals import Interval
from autotune.outcome import Diagnosed
from autotune.report.source import Source
from autotune.tuning.confirming.conclusion import ANSWER
from autotune.tuning.confirming.fates import CONFIRMATION
from autotune.tuning.diagnosis import DIAGNOSIS
from autotune.tuning.storing.archive import Archive, read_archive
from autotune.tuning.storing.study import FinishedTrial, best_feasible

Standing = Literal["baseline", "answer", "feasible", "refused", "memory", "accuracy", "failed"]
"""What a trial is to the report; always drawn in the same shape and colour."""


@dataclass(frozen=True)
class ReportData:
    """A study with its answer, and what follows from both."""

    archive: Archive
    best: BestConfig | None = None
    remarks: tuple[str, ...] = ()
    """What a reader has to know of how the report was read."""

    @cached_property
    def trials(self) -> tuple[FinishedTrial, ...]:
        """Those with a verdict, in order."""
        return self.archive.finished

    @cached_property
    def baseline(self) -> FinishedTrial | None:
        """The first trial: the user's own settings."""
        return self.trials[0] if self.trials else None

    @cached_property
    def baseline_config(self) -> TrainingConfig | None:
        """The user's own settings."""
        if self.best is not None:
            return TrainingConfig.of(self.best.evidence.baseline.config)
        return None if self.baseline is None else self.baseline.config

    @cached_property
    def answer(self) -> FinishedTrial | None:
        """The trial that best.yaml was made of, where the study has it."""
        if self.best is None:
            return None
        config, number = self.best.training_config, self.best.provenance.trial
        return next((t for t in self.trials if t.number == number and t.config == config), None)

    @cached_property
    def leader(self) -> FinishedTrial | None:
        """The fastest feasible trial: what leads while nothing was confirmed."""
        return best_feasible(self.trials)

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the study is of: model, space, limits."""
        noted = self.archive.notes.get("identity")
        return noted if isinstance(noted, dict) else {}

    @property
    def objective(self) -> str:
        """Its name, with the length of the run where it is the time of one."""
        if self.best is not None:
            return self.best.evidence.objective
        return str(self.identity.get("objective", "throughput"))

    @property
    def memory_limit_bytes(self) -> int | None:
        """What no trial may exceed."""
        if self.best is not None:
            return self.best.constraints.memory.limit_bytes
        limit = self.identity.get("memory_limit_bytes")
        return limit if isinstance(limit, int) else None

    @cached_property
    def stages(self) -> Diagnosed | None:
        """What each stage of training takes alone, with the user's settings."""
        try:
            noted = self.archive.notes.get(DIAGNOSIS)
            return None if noted is None else TypeAdapter(Diagnosed).validate_python(noted)
        except ValidationError:
            return None

    @cached_property
    def confirmation(self) -> Mapping[str, Any]:
        """Seconds of the confirmation, and its candidates by number; empty where none was noted."""
        noted = self.archive.notes.get(CONFIRMATION)
        return noted if isinstance(noted, dict) else {}

    def fate(self, trial: FinishedTrial) -> Mapping[str, Any]:
        """What became of a trial in the confirmation; empty where it was in none."""
        return dict(self.confirmation.get("candidates", {}).get(str(trial.number), {}))

    def standing(self, trial: FinishedTrial) -> Standing:
        """What the trial is to the report."""
        if trial is self.baseline and trial.verdict.feasible:
            return "baseline"
        if trial is self.answer:
            return "answer"
        margins = trial.verdict.margins
        if margins.get("ran", 0.0) > 0:
            return "failed"
        for name in ("memory", "accuracy"):
            if margins.get(name, 0.0) > 0:
                return "memory" if name == "memory" else "accuracy"
        return "refused" if "refused" in self.fate(trial) else "feasible"

    def ratio(self, trial: FinishedTrial) -> float | None:
        """How many times as fast as the baseline, by the trials alone."""
        reference = self.baseline.verdict.value if self.baseline else None
        value = trial.verdict.value
        return value / reference if value and reference else None

    def ratio_interval(self, trial: FinishedTrial) -> Interval | None:
        """The 95 % interval of one process over the baseline's rate, where rates are compared."""
        reference = self.baseline.verdict.value if self.baseline else None
        bounds = trial.details.get("samples_per_second_ci95")
        if not reference or not bounds or not trial.verdict.value or "run_time" in self.objective:
            return None
        speed = float(trial.details.get("machine_speed") or 1.0)
        low, high = (float(bound) / speed / reference for bound in bounds)
        return low, high

    def differences(self, config: TrainingConfig) -> dict[str, Any]:
        """What of a configuration is not as in the user's own settings."""
        own = self.baseline_config
        return config.as_dict() if own is None else config.differences(own)


def read_report(source: Source, name: str | None = None) -> ReportData:
    """Read a study, and the answer from its notes or from the file beside it.

    Raises:
        UsageError, StorageError: see `read_archive` and `read_best`.
    """
    if source.url is None:
        return _from_answer(source)
    archive = read_archive(source.url, name)
    best, remarks = _noted_answer(archive)
    if best is None and source.answer is not None:
        best, more = _answer_beside(archive, source.answer)
        remarks += more
    return ReportData(archive, best, tuple(remarks))


def _from_answer(source: Source) -> ReportData:
    assert source.answer is not None
    best = read_best(source.answer)
    archive = Archive(best.provenance.study, str(source.answer))
    return ReportData(
        archive, best, (f"Read from {source.answer} alone: of the trials nothing is known.",)
    )


def _noted_answer(archive: Archive) -> tuple[BestConfig | None, list[str]]:
    """The answer that the study keeps, and what is to be said of it."""
    noted = archive.notes.get(ANSWER)
    if noted is None:
        return None, []
    try:
        best = BestConfig.model_validate_json(json.dumps(noted["best"]))
        TrainingConfig.of(best.config)
        after = int(noted["trials"])
    except (KeyError, TypeError, ValueError, UsageError):
        return None, ["The answer in the study was written by another version and is left out."]
    newer = len(archive.finished) - after
    if newer <= 0:
        return best, []
    text = f"The answer was confirmed after {after} trials; {newer} came later. "
    return best, [text + "The same `autotune search` command confirms anew."]


def _answer_beside(archive: Archive, path: Path) -> tuple[BestConfig | None, list[str]]:
    """The file beside the study, where it is of this study."""
    try:
        best = read_best(path)
    except UsageError as error:
        return None, [f"{path} is left out: {str(error).splitlines()[0]}"]
    if best.provenance.study != archive.name:
        return None, [f"{path} is left out: it is of study {best.provenance.study!r}."]
    return best, []
