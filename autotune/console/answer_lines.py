"""Render the result of a search: a few lines for people, one JSON object for programs."""

from __future__ import annotations

import json
from typing import Any

from autotune.configuration.best_config import (
    NOT_MEASURED,
    AccuracyEvidence,
    Evidence,
    Searched,
    Speedup,
)
from autotune.configuration.training_config import TrainingConfig, render
from autotune.knobs.base import spelled
from autotune.searching.run.events import Answered, NothingFeasible
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.text import disturbed_sentence, rounds_text, size, span

SCHEMA_VERSION = 1


def answer_lines(event: Answered) -> list[str]:
    """Return the result of a search in a few lines."""
    best, evidence = event.best, event.best.evidence
    if best.keeps_baseline:
        headline = keep_headline(evidence)
    else:
        low, high = evidence.speedup.ci95
        changed = best.training_config.differences(TrainingConfig.of(evidence.baseline.config))
        headline = (
            f"{evidence.speedup.ratio:.2f}x faster than your settings "
            f"({low:.2f} to {high:.2f}, {_rounds(evidence.speedup)}): {render(changed)}"
        )
    accuracy, memory = best.constraints.accuracy, best.constraints.memory
    lines = [
        "",
        headline,
        f"  throughput  {evidence.baseline.samples_per_second:g} -> "
        f"{evidence.best.samples_per_second:g} samples/s",
        f"  memory      {size(memory.peak_bytes)} of {size(memory.limit_bytes)}",
        accuracy_line(accuracy),
    ]
    if run := evidence.predicted_run:
        lines.append(
            f"  run         of {run.samples} samples, predicted: {span(run.baseline_seconds)} -> "
            f"{span(run.best_seconds)}"
        )
    lines += searched_lines(evidence.searched)
    if accuracy.needs_full_run:
        lines.append("  The batch size changed: check one full training before you rely on it.")
    return [*lines, f"  written to  {event.path}"]


def _rounds(speedup: Speedup) -> str:
    return rounds_text(speedup.rounds, speedup.disturbed_rounds)


def keep_headline(evidence: Evidence) -> str:
    """Return the headline for keeping the user's settings, with the configurations measured."""
    searched, more = evidence.searched, disturbed_sentence(evidence.speedup.disturbed_rounds)
    if searched is None:
        return f"Keep your settings: nothing was faster beyond the noise.{more}"
    if not searched.measured:
        return f"Keep your settings: no other configuration was measured.{more}"
    tried = f"{searched.measured} configuration{'' if searched.measured == 1 else 's'} measured"
    return f"Keep your settings: of {tried}, none was faster beyond the noise.{more}"


def searched_lines(searched: Searched | None) -> list[str]:
    """Return lines on the part of the search space that was measured."""
    if searched is None:
        return []
    values = (f"{name} {', '.join(map(spelled, tried))}" for name, tried in searched.tried.items())
    lines = [
        f"  searched    {searched.measured} of {searched.configurations} configurations: "
        + ("; ".join(values) or "your settings alone")
    ]
    if searched.failed:
        lines.append(f"  failed      {searched.failed} more")
    if searched.never_varied:
        lines.append(f"  not varied  {', '.join(searched.never_varied)}")
    return lines


def accuracy_line(accuracy: AccuracyEvidence) -> str:
    """Return the line on the quality of the baseline and of the result."""
    if not accuracy.is_measured:
        return f"  quality     {NOT_MEASURED}"
    return (
        f"  {accuracy.metric:<11} {accuracy.baseline:g} -> {accuracy.best:g} "
        f"(allowed difference {accuracy.tolerance:g}, {accuracy.seeds} seeds)"
    )


def nothing_lines(event: NothingFeasible) -> list[str]:
    """Return lines that give the reasons for having no result, each with its count."""
    reasons = [f"  {count} x {reason}" for reason, count in event.reasons.items()]
    return ["\nNothing feasible, no file is written:", *reasons]


def result(event: Answered | NothingFeasible) -> str:
    """Return the end of a search as one JSON object for programs."""
    if isinstance(event, NothingFeasible):
        data: dict[str, Any] = {"answer": "none", "reasons": event.reasons}
    else:
        answer = "keep" if event.best.keeps_baseline else "faster"
        data = {
            "answer": answer,
            "path": str(event.path),
            "best": event.best.model_dump(mode="json"),
        }
    return json.dumps({"schema_version": SCHEMA_VERSION, **data})


def not_enough_result(error: NotSearchedEnoughError) -> str:
    """Return a search without enough trials as one JSON object for programs."""
    data = {"answer": "not searched enough", "reason": str(error), "measured": error.measured}
    return json.dumps({"schema_version": SCHEMA_VERSION, **data, "time_budget": error.seconds})
