"""Searches against tables under a clock that the replayed processes move, told event by event.

Install `goldens.clock` and `goldens.ties` before this module is imported.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from autotune.configuration.job import Inspect, Job, Probe
from autotune.configuration.training_config import TrainingConfig, render
from autotune.context.options import SearchOptions
from autotune.searching.run.diagnosis import limits_of
from autotune.searching.run.events import (
    Answered,
    CandidateRefused,
    Event,
    Noted,
    NothingFeasible,
    PhaseStarted,
    Planned,
    RoundEnded,
    RoundVoid,
    StagesTimed,
    StepStarted,
    TrialEnded,
    TrialsEnded,
    TrialStarted,
    Warned,
)
from autotune.searching.search import search
from autotune.study.facts import FinishedTrial
from autotune.values.errors import AutotuneError
from autotune.values.outcome import Probed, TimedOut, TrialOutcome
from benchmarks import synthetic, synthetic_tables
from benchmarks.replay import ReplayRunner
from benchmarks.table import Row, Table, read_table
from goldens.clock import CLOCK
from goldens.dumps import leaves, spelled

RECORDED = sorted((Path(__file__).parents[2] / "studies" / "tables").glob("*.jsonl.xz"))
GENERATED = {
    world.__name__: world
    for world in (*synthetic.TUNED_ON, *synthetic.DECEPTIVE, *synthetic.HELD_OUT)
}
REFUSING = "digits_cnn_refusing"
"""A table in which bfloat16 looks accurate by its first seed alone."""
TABLES = [*(path.name.removesuffix(".jsonl.xz") for path in RECORDED), *GENERATED, REFUSING]
SEEDS = 5
_PROFILES: tuple[dict[str, Any], ...] = (
    {"trials": 40},
    {},
    {"time_budget_seconds": 360.0},
    {"trials": 40, "run_samples": 500_000},
    {"time_budget_seconds": 90.0},
)
"""Options of a search: a number of trials, none, a time, the fastest run, too little time.

A table has each once, with another seed than the table before.
"""
_INSPECTION_SECONDS = 3.0
_LOSS = 0.05
"""Loss of quality by all other seeds of bfloat16 in `REFUSING`."""


class ClockedRunner:
    """Answers from a table, moves the clock by what that took, and ends jobs at their deadline."""

    def __init__(self, table: Table, seed: int) -> None:
        self._replay = ReplayRunner(table, seed)

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Return the table's outcome, or `TimedOut`."""
        before = self._replay.seconds
        outcome = self._replay.run(job, folder)
        seconds = self._replay.seconds - before
        if isinstance(job.task, Inspect):
            seconds = _INSPECTION_SECONDS
        if seconds > job.deadline_seconds:
            seconds = job.deadline_seconds
            outcome = TimedOut(job.task.kind, seconds)
        CLOCK.wait(seconds)
        return outcome


@cache
def table_named(name: str) -> Table:
    """Return a recorded table, a generated one, or `REFUSING`."""
    if name == REFUSING:
        return _refusing(table_named("digits_cnn"))
    if name in GENERATED:
        return synthetic_tables.table_of(GENERATED[name]())
    return read_table(next(path for path in RECORDED if path.name == f"{name}.jsonl.xz"))


def _refusing(table: Table) -> Table:
    sign = 1 if table.header.workload.has_evaluate else -1
    own = table.probed[table.baseline.quality_key()].outcome
    assert isinstance(own, Probed)

    def spoilt(row: Row) -> Row:
        is_probe = isinstance(row.task, Probe) and isinstance(row.outcome, Probed)
        if not is_probe or row.config["amp_dtype"] != "bfloat16":
            return row
        worse = sign * _LOSS
        qualities = (own.qualities[0] - (worse if seed else 0.0) for seed in row.task.seeds)
        return replace(row, outcome=replace(row.outcome, qualities=tuple(qualities)))

    return replace(table, answers=tuple(map(spoilt, table.answers)))


def options(table: Table, seed: int, **asked: Any) -> SearchOptions:
    """Return a search of the table's space whose files lie in the working directory."""
    model, space = Path("model.py"), Path("space.yaml")
    model.write_text("# is never run\n", encoding="utf-8")
    knobs = (f"{knob}: {json.dumps(values)}" for knob, values in table.header.space.items())
    space.write_text("\n".join(["portable: true", *knobs, ""]), encoding="utf-8")
    asked = {
        "study": "golden",
        "storage": None,
        "memory_limit_bytes": table.header.memory_limit_bytes,
        **asked,
    }
    return SearchOptions.of(
        model_path=model, folder=Path(), out=Path("best.yaml"), space=str(space), seed=seed, **asked
    )


def trace(name: str, seed: int) -> Iterator[str]:
    """Yield the lines of one search of a table: what was asked, its events, and its best.yaml."""
    asked = _PROFILES[(TABLES.index(name) + seed) % len(_PROFILES)]
    yield f"=== seed {seed} {spelled(asked)}"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        wanted = options(table_named(name), seed, **asked)
        yield from events_of(wanted, ClockedRunner(table_named(name), seed))


def events_of(wanted: SearchOptions, runner: ClockedRunner) -> Iterator[str]:
    """Yield a line for each event of a search, then the lines of its best.yaml."""
    yield from told(search(wanted, runner))
    if wanted.study.out.exists():
        yield from leaves(yaml.safe_load(wanted.study.out.read_text(encoding="utf-8")), "best.yaml")


def told(events: Iterator[Event]) -> Iterator[str]:
    """Yield the seconds since the start, the class and the facts of each event."""
    CLOCK.restart()
    begun = CLOCK.now
    own: TrainingConfig | None = None
    try:
        for event in events:
            if isinstance(event, Planned):
                own = event.context.baseline
            assert own is not None
            facts = (f"{name}={_text(fact, own)}" for name, fact in _facts(event).items())
            yield f"{spelled(CLOCK.now - begun)} {type(event).__name__} {' '.join(facts)}"
    except AutotuneError as error:
        yield f"{spelled(CLOCK.now - begun)} raised {type(error).__name__} {spelled(str(error))}"


def _text(fact: object, own: TrainingConfig) -> str:
    if isinstance(fact, TrainingConfig):
        return f"({render(fact.differences(own))})"
    return spelled(fact)


def _facts(event: Event) -> Mapping[str, object]:  # noqa: PLR0911 (one for each class)
    """Return the facts of an event by names of this file."""
    match event:
        case Planned():
            context = event.context
            return {
                "finished": event.finished_before,
                "trials": context.trials,
                "seconds": context.time_budget_seconds,
                "start": context.start_seconds,
                "metric": (context.judge.by, context.judge.higher_is_better),
                "notes": context.space.notes,
                "identity": context.identity,
            }
        case StagesTimed():
            return {
                "bound": event.diagnosis.bound,
                "limits": limits_of(event.diagnosis.stages),
                "doubt": event.diagnosis.doubt,
                "size": event.space.size,
                "varied": event.space.varied(),
                "notes": event.space.notes,
            }
        case TrialsEnded():
            return {"reason": event.reason}
        case PhaseStarted():
            return {"phase": event.phase, "detail": event.detail, "eta": event.eta_seconds}
        case StepStarted():
            return {"detail": event.detail}
        case Noted():
            return {"text": event.text}
        case Warned():
            return {"warning": event.warning}
        case Answered():
            return {"config": event.best.training_config, "path": str(event.path)}
        case NothingFeasible():
            return {"reasons": event.reasons}
        case _:
            return _facts_of_trial(event)


def _facts_of_trial(event: Event) -> Mapping[str, object]:
    match event:
        case TrialStarted():
            return {"number": event.number, "config": event.config}
        case TrialEnded():
            return {
                **_trial(event.trial),
                "best": event.best.number,
                "elapsed": event.elapsed_seconds,
                "eta": event.eta_seconds,
            }
        case RoundEnded():
            return {
                "config": event.config,
                "ratios": event.ratios,
                "interval": event.interval,
                "disturbed": event.disturbed,
                "eta": event.eta_seconds,
            }
        case RoundVoid():
            return {"number": event.number, "why": event.disturbance, "eta": event.eta_seconds}
        case CandidateRefused():
            return {"number": event.trial.number, "reason": event.reason}
        case _:
            raise AssertionError(f"{type(event).__name__} is no event that goldens know")


def _trial(trial: FinishedTrial) -> Mapping[str, object]:
    run = trial.details.measurement
    kept = ("outcome", "seconds", "timing_seconds", "quality")
    return {
        "number": trial.number,
        "config": trial.config,
        "value": trial.verdict.value,
        "margins": trial.verdict.margins,
        "reason": trial.verdict.reason,
        **{name: getattr(trial.details, name) for name in kept},
        "machine_speed": None if run is None else run.machine_speed,
    }
