"""Data of a report: one value, read from a study, from which every output is made.

For programs it is written here: one JSON object, or CSV with a row for each trial. On stdout it is
a table in a terminal, plain lines in a pipe.

Every part may be missing: the search may be running, may have ended without a confirmation, or
only its best.yaml may exist.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from autotune.configuration import best_config
from autotune.configuration.best_config import BestConfig, Fact, read_best
from autotune.configuration.constraints import CONSTRAINTS
from autotune.configuration.evidence import Searched
from autotune.configuration.training_config import TrainingConfig, render, with_own
from autotune.console.lines import how_to_use
from autotune.console.progress import answer, print_rows
from autotune.knobs import KNOBS
from autotune.knobs.base import spelled
from autotune.searching.run.coverage import searched_part
from autotune.searching.trials.drift import baselines_apart, conditions
from autotune.study import history
from autotune.study.archive import Archive, StudyPlace, read_archive
from autotune.study.facts import (
    ACCURACY,
    DIAGNOSIS,
    CandidateLog,
    FinishedTrial,
    Identity,
    best_feasible,
)
from autotune.values.measurement import Measurement
from autotune.values.statistics import Interval
from autotune.values.text import SCHEMA_VERSION, readable, size, span

Standing = Literal["baseline", "answer", "feasible", "refused", "memory", "accuracy", "failed"]
"""Kind of a trial in the report; each has its own shape and colour."""
_FAILURES = {
    "out_of_memory": "out of memory",
    "timed_out": "timed out",
    "crashed": "crashed",
    "non_finite": "the loss became NaN or infinite",
    "rejected": "refused by PyTorch, the compiler or the dataset",
    "not_applied": "a setting did not take effect",
    "user_error": "model.py raised an error",
    "memory": "over the memory limit",
    "accuracy": "trains worse than allowed",
    "ran": "its speed never settled, or a short training failed",
    "lost": "did not complete, or was interrupted",
}
_OF_RUN = ("joules_per_sample", "machine_speed", "compile_seconds")
_OF_TRIAL = ("samples_per_second", "peak_memory_bytes", "quality", "seconds", "assumed_samples")
_MOST_ROWS = 20
# Cells with numbers that the table has; the page has the others, too.
_NUMBERS = (0, 1, 3, 4)
_MARKS: dict[str, str] = {
    "answer": "the result",
    "refused": "not confirmed",
    **dict.fromkeys(("memory", "accuracy", "failed"), "rejected"),
}
_UNKNOWN = "-"


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


@dataclass(frozen=True)
class ReportData:
    """A study with its result, and figures derived from both."""

    archive: Archive
    best: BestConfig | None = None
    remarks: tuple[str, ...] = ()
    """Remarks for the reader on the sources of the report."""
    path: Path | None = None
    """The best.yaml of the study; None if none was found."""
    rates: tuple[history.ConfirmedRate, ...] = ()
    """Rates of the study's results that searches and comparisons confirmed, the oldest first."""

    @cached_property
    def trials(self) -> tuple[FinishedTrial, ...]:
        """Return the trials with a verdict, in order."""
        return self.archive.finished

    @cached_property
    def baseline(self) -> FinishedTrial | None:
        """Return the first trial, which has the user's settings."""
        return self.trials[0] if self.trials else None

    @cached_property
    def baseline_config(self) -> TrainingConfig | None:
        """Return the user's settings; None if unknown."""
        if self.best is not None:
            return TrainingConfig.of(self.best.evidence.baseline.config)
        return None if self.baseline is None else self.baseline.config

    @cached_property
    def answer(self) -> FinishedTrial | None:
        """Return the trial that best.yaml comes from; None if the study does not hold it."""
        if self.best is None:
            return None
        changed, number = self.best.changed.items(), self.best.provenance.trial
        found = (trial for trial in self.trials if trial.number == number)
        return next((t for t in found if all(t.config[k] == v for k, v in changed)), None)

    @cached_property
    def incumbent(self) -> FinishedTrial | None:
        """Return the fastest feasible trial; None if no trial is feasible."""
        return best_feasible(self.trials)

    @cached_property
    def pareto_best(self) -> tuple[FinishedTrial, ...]:
        """Return the feasible trials that no other one beats in both throughput and memory.

        The first takes the least memory, the last is the fastest.
        """
        known = [
            trial
            for trial in self.trials
            if self.standing(trial) in ("baseline", "answer", "feasible")
            and trial.details.peak_memory_bytes is not None
            and trial.verdict.value is not None
        ]
        known.sort(key=lambda one: (one.details.peak_memory_bytes, -(one.verdict.value or 0.0)))
        best = list[FinishedTrial]()
        for trial in known:
            if not best or (trial.verdict.value or 0.0) > (best[-1].verdict.value or 0.0):
                best.append(trial)
        return tuple(best)

    @cached_property
    def failures(self) -> list[FailureKind]:
        """Return infeasible and lost trials by kind, the most frequent first."""
        found: dict[str, dict[int, str]] = defaultdict(dict)
        for trial in self.trials:
            if not trial.verdict.feasible:
                found[failure_kind(trial)][trial.number] = trial.verdict.reason
        for lost in self.archive.open:
            if lost.state == "lost":
                found["lost"][lost.number] = lost.reason or "its process is gone"
        kinds = []
        for kind, reasons in found.items():
            example = (next(iter(reasons.values())).splitlines() or ["no reason recorded"])[0]
            kinds.append(FailureKind(kind, _FAILURES.get(kind, kind), tuple(reasons), example))
        return sorted(kinds, key=lambda one: -len(one.trials))

    @cached_property
    def phases(self) -> list[Phase]:
        """Return the seconds of each phase, as far as the study recorded them."""
        spent: dict[str, float] = defaultdict(float)
        if self.baseline is not None:
            noted = self.archive.notes.phase_seconds
            spent["your settings: timing"] = self.baseline.details.seconds or 0.0
            spent["your settings: quality"] = noted.get(ACCURACY, 0.0)
            spent["diagnosis"] = noted.get(DIAGNOSIS, 0.0)
        for trial in self.trials[1:]:
            seconds, run = trial.details.seconds or 0.0, trial.details.measurement
            parts = {"trials that failed": seconds} if run is None else _parts(run)
            parts["trials: start, quality, drift checks"] = max(0.0, seconds - sum(parts.values()))
            for name, part in parts.items():
                spent[name] += part
        confirmation = self.archive.notes.confirmation
        spent["confirmation"] = 0.0 if confirmation is None else confirmation.seconds
        return [Phase(name, seconds) for name, seconds in spent.items() if seconds > 0]

    @cached_property
    def identity(self) -> Identity:
        """Return the facts that identify the study: model, space, limits; may be empty."""
        return self.archive.notes.identity or Identity()

    @cached_property
    def searched(self) -> Searched | None:
        """Return the part of the search space that was measured so far; None if unknown."""
        if self.best is not None and self.best.evidence.searched is not None:
            return self.best.evidence.searched
        return searched_part(self.identity, self.trials)

    @property
    def facts(self) -> list[Fact]:
        """Return what was measured of the result, and which part of the space was searched."""
        changed = {} if self.best is None else self.best.changed
        found = [] if self.best is None else best_config.facts(self.best)
        return [*found, *best_config.searched_facts(self.searched, changed)]

    @property
    def objective(self) -> str:
        """Return the objective's name, with the samples of the run if it is the time of a run."""
        if self.best is not None:
            return self.best.evidence.objective
        return self.identity.objective

    @property
    def rate_unit(self) -> str:
        """Return the unit of every throughput."""
        if self.best is not None:
            return self.best.evidence.rate_unit
        return self.archive.notes.rate_unit

    @property
    def memory_limit_bytes(self) -> int | None:
        """Return the memory limit of every trial; None if unknown."""
        if self.best is not None:
            return self.best.constraints.memory.limit_bytes
        return self.identity.memory_limit_bytes

    def candidate_log(self, trial: FinishedTrial) -> CandidateLog:
        """Return the outcome of a trial in the confirmation; empty if it was no candidate."""
        confirmation = self.archive.notes.confirmation
        logs = {} if confirmation is None else confirmation.candidates
        return logs.get(trial.number, CandidateLog())

    def standing(self, trial: FinishedTrial) -> Standing:
        """Return the trial's kind in the report."""
        if trial is self.baseline and trial.verdict.feasible:
            return "baseline"
        if trial is self.answer:
            return "answer"
        kinds: dict[str, Standing]
        kinds = {"ran": "failed", "memory": "memory", "accuracy": "accuracy"}
        for name, kind in kinds.items():
            if trial.verdict.margins[name] > 0:
                return kind
        return "feasible" if self.candidate_log(trial).refused is None else "refused"

    def ratio(self, trial: FinishedTrial) -> float | None:
        """Return the ratio of the trial's value to the baseline's; None without both values."""
        reference = self.baseline.verdict.value if self.baseline else None
        value = trial.verdict.value
        return value / reference if value and reference else None

    def ratio_interval(self, trial: FinishedTrial) -> Interval | None:
        """Return the 95 % interval of the trial's rate over the baseline's rate.

        None if a rate is missing, or if the objective is a time.
        """
        reference = self.baseline.verdict.value if self.baseline else None
        run = trial.details.measurement
        if not reference or run is None or not trial.verdict.value or "time" in self.objective:
            return None
        low, high = run.samples_per_second_interval
        return low / run.machine_speed / reference, high / run.machine_speed / reference

    def differences(self, config: TrainingConfig) -> dict[str, Any]:
        """Return the settings of a configuration that differ from the user's."""
        own = self.baseline_config
        return config.as_dict() if own is None else config.differences(own)


def failure_kind(trial: FinishedTrial) -> str:
    """Return the kind of a trial's outcome; of a measured one, its most violated constraint."""
    outcome, margins = trial.details.outcome or "measured", trial.verdict.margins
    return outcome if outcome != "measured" else max(margins, key=lambda name: margins[name])


def _parts(run: Measurement) -> dict[str, float]:
    """Return the seconds of a measurement by part, without the start of the process."""
    blocks = sum(block.seconds for block in run.blocks)
    return {
        "trials: building model and dataset": max(0.0, run.build_seconds - run.shared_seconds),
        "trials: warming up and compiling": sum(run.warmup_step_seconds),
        "trials: timing": blocks + sum(run.boundary_seconds),
    }


def read_report(place: StudyPlace, name: str | None = None) -> ReportData:
    """Read a study with its result, or a best.yaml alone; see `read_archive` and `read_best`."""
    if place.url is None:
        return _from_answer(place)
    archive = read_archive(place.url, name)
    answer, remarks = archive.notes.answer, list[str]()
    best = None if answer is None else answer.best
    if answer is not None and (newer := len(archive.finished) - answer.trials) > 0:
        remarks = [
            f"The result was confirmed after {answer.trials} trials; {newer} came later. "
            "Run the same `autotune search` command to confirm again."
        ]
    if best is not None:
        held_back = best.evidence.blocks and best.evidence.blocks.remark
        steps = best.evidence.baseline.steps
        uneven = steps.remark and f"your settings: {steps.remark}" if steps else None
        told = (baselines_apart(archive.notes), held_back, uneven)
        remarks += [f"Note: {remark}." for remark in told if remark]
    rates = () if place.folder is None else history.read(place.folder)
    return ReportData(archive, best, tuple(remarks), place.answer, rates)


def _from_answer(place: StudyPlace) -> ReportData:
    assert place.answer is not None
    best = read_best(place.answer)
    archive = Archive(best.provenance.study, str(place.answer))
    edits = (
        f"Edited since the search, and not measured: {one}." for one in best_config.edited(best)
    )
    remarks = (f"This report has only {place.answer}, which has no trials.", *edits)
    rates = history.read(place.answer.parent)
    return ReportData(archive, best.as_measured(), remarks, place.answer, rates)


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


def headline(data: ReportData) -> str:
    """Return the result in one sentence, or how far the search is."""
    if data.best is not None:
        return best_config.headline(data.best)
    running = any(trial.state == "running" for trial in data.archive.open)
    state = "A trial is running, or was killed." if running else "The search can be continued."
    count, incumbent = len(data.trials), data.incumbent
    if incumbent is None and count:
        return "No result: every trial was rejected, your own settings included."
    if incumbent is None:
        found = "no trial has ended"
    elif count == 1:
        found = "only your own settings were measured"
    elif incumbent is data.baseline:
        found = f"none of {count} trials is faster than your settings"
    else:
        ratio = data.ratio(incumbent)
        factor = "" if ratio is None else f", {_times(incumbent, ratio)} your settings"
        found = f"trial {incumbent.number} is the fastest of {count}{factor}. Nothing is confirmed"
    return f"No result yet: {found}. {state}"


def _times(trial: FinishedTrial, ratio: float) -> str:
    return f"{'~' if trial.details.assumed_samples else ''}{ratio:.2f}x"


def next_step(data: ReportData) -> tuple[str, list[str]]:
    """Return what to do now: a sentence, and the commands to choose from, if any."""
    best, path = data.best, data.path
    if best is None:
        return "Run the same autotune search command again: it continues.", []
    if best.keeps_baseline:
        return "Nothing, or search longer: the same command with a longer --time-budget.", []
    if path is None:
        return "Train with the best.yaml that the search wrote.", []
    is_script = best.provenance.arguments_sha256 is not None
    words = f"{shlex.quote(best.provenance.model)} ARGUMENTS" if is_script else None
    return "Train with the result:", how_to_use(path, words)


def show_report(data: ReportData) -> None:
    """Print the result, the trials, the failures and the time by phase."""
    archive = data.archive
    lines = [f"study {archive.name} in {archive.storage}", *data.remarks, "", headline(data)]
    text, commands = next_step(data)
    then = ("next", f"{text} {', or '.join(commands)}".strip())
    answer([*lines, *best_config.fact_lines([*data.facts, then]), ""])
    shown = _chosen_trials(data)
    if shown:
        answer(["In the search:"])  # the throughputs of trials are not those of the confirmation
        headers = ("trial", data.rate_unit, "speed-up", "memory", "settings")
        cells = [row_of(data, trial) for trial in shown]
        # The remarks stand behind the settings.
        rows = [
            (*map(row.__getitem__, _NUMBERS), "; ".join(filter(None, row[-2:]))) for row in cells
        ]
        print_rows(rows, headers, len(_NUMBERS))
    if hidden := len(data.trials) - len(shown):
        answer([f"{hidden} slower or rejected trials are not shown; --csv has them all."])
    answer(_after_table(data))


def _after_table(data: ReportData) -> list[str]:
    """Return lines on running trials, failures and time by phase."""
    lines = []
    running = [str(trial.number) for trial in data.archive.open if trial.state == "running"]
    if running:
        lines.append(f"unfinished (running or killed): trial {', '.join(running)}")
    if data.failures:
        lines.append("\nfailed and rejected trials:")
        lines += [f"  {len(one.trials)} x {one.label}: {one.example}" for one in data.failures]
    if data.phases:
        lines.append("\ntime spent:")
        lines += [f"  {span(phase.seconds):>12}  {phase.name}" for phase in data.phases]
    return lines


def _chosen_trials(data: ReportData) -> list[FinishedTrial]:
    """Return all trials of a small study in order; else baseline, result and the fastest."""
    if len(data.trials) <= _MOST_ROWS:
        return list(data.trials)
    feasible = [trial for trial in data.trials if trial.verdict.feasible]
    feasible.sort(key=lambda trial: -(trial.verdict.value or 0.0))
    first = [trial for trial in (data.baseline, data.answer) if trial is not None]
    return list({trial.number: trial for trial in (*first, *feasible)}.values())[:_MOST_ROWS]


def row_of(data: ReportData, trial: FinishedTrial) -> tuple[str, ...]:
    """Return a trial as the cells of a row."""
    details, ratio = trial.details, data.ratio(trial)
    rate, run = details.samples_per_second, details.measurement
    memory, seconds = details.peak_memory_bytes, details.seconds
    mark, reason = _MARKS.get(data.standing(trial), ""), trial.verdict.reason
    log = data.candidate_log(trial)
    said = (mark, reason or log.refused)
    return (
        str(trial.number),
        _UNKNOWN if rate is None else f"{rate:.1f}",
        _UNKNOWN if run is None else "{:.1f} to {:.1f}".format(*run.samples_per_second_interval),
        _UNKNOWN if ratio is None else _times(trial, ratio),
        _UNKNOWN if memory is None else size(memory),
        _UNKNOWN if seconds is None else f"{seconds:.1f}",
        render(data.differences(trial.config)) or "your settings",
        "; ".join(filter(None, (": ".join(filter(None, said)), *conditions(details)))),
    )
