"""Render the result of a search or a comparison: lines for people, one JSON object for programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from autotune.comparison.compare import ComparisonOptions
from autotune.comparison.rounds import PairedComparison
from autotune.configuration.answer_words import (
    course_changes,
    keep_headline,
    learning_rate_text,
    not_proven_texts,
    pays_back_text,
    processes_text,
    start_text,
)
from autotune.configuration.best_config import BestConfig, Evidence
from autotune.configuration.evidence import AccuracyEvidence, Arithmetic, Searched
from autotune.configuration.training_config import render
from autotune.console.event_lines import round_line, void_line
from autotune.console.plan_lines import command_words
from autotune.knobs.base import Value, spelled
from autotune.searching.run.events import Answered, NothingFeasible
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.text import by_reason, readable, rounds_text, span

SCHEMA_VERSION = 1


def answer_lines(event: Answered | NothingFeasible) -> list[str]:
    """Return the result of a search in a few lines."""
    if isinstance(event, NothingFeasible):
        reasons = [f"  {count} x {reason}" for reason, count in event.reasons.items()]
        return ["Nothing feasible, no file is written:", *reasons]
    best, evidence = event.best, event.best.evidence
    if best.keeps_baseline:
        headline = keep_headline(evidence)
    else:
        speedup, (low, high) = evidence.speedup, evidence.speedup.ci95
        rounds = rounds_text(speedup.rounds, speedup.disturbed_rounds)
        headline = (
            f"{speedup.ratio:.2f}x faster than your settings "
            f"({low:.2f} to {high:.2f}, {rounds}): {render(best.changed)}"
        )
    accuracy, memory = best.constraints.accuracy, best.constraints.memory
    lines = [
        headline,
        *throughput_lines(best),
        *processes_lines(best),
        f"  memory      {memory.in_words}",
        *accuracy_lines(accuracy),
    ]
    if run := evidence.predicted_run:
        lines.append(
            f"  run         of {run.samples} {evidence.counted}, predicted: "
            f"{span(run.baseline_seconds)} -> {span(run.best_seconds)}"
        )
    lines += [f"  not proven  {text}" for text in not_proven_texts(best)]
    lines += deciding_lines(best)
    lines += searched_lines(evidence.searched, best.changed)
    own = evidence.baseline.config
    for why, names in by_reason(event.own_settings).items():
        lines.append(f"  not varied  {render({name: own.get(name) for name in names})}: {why}")
    if event.script_start is not None:
        lines.append(f"  time        {start_text(event.script_start)}")
    return [*lines, *_closing_lines(event)]


def _closing_lines(event: Answered) -> list[str]:
    """Return the lines on what the answer is worth, what to check, and how to train with it."""
    best, lines = event.best, []
    if (text := pays_back_text(best, event.seconds)) is not None:
        lines.append(f"  pays back   {text}")
    if (text := learning_rate_text(best)) is not None:
        is_scaled = event.script is not None or best.lr_scaling.factor != 1
        lines.append(f"  learning rate  {text}{'' if is_scaled else ', or --lr-scaling'}")
    if event.remark is not None:
        lines.append(f"  note        {event.remark}")
    if best.constraints.accuracy.needs_full_run:
        changes = course_changes(best)
        said = f"{changes[0].upper()}{changes[1:]} changed"
        lines.append(f"  {said}: check one full training before you rely on it.")
    lines.append(f"  written to  {event.path}")
    if best.keeps_baseline:
        return lines
    path = shlex.quote(str(event.path))
    if event.script is None:
        way = f"autotune.load({str(event.path)!r}), or autotune export {path}"
    else:
        way = f"autotune run {path} {command_words(Path(best.provenance.model), event.script)}"
    return [*lines, f"  use it      {way}"]


def deciding_lines(best: BestConfig) -> list[str]:
    """Return a line on what may decide about faster trials that seeds left open; none if none."""
    if not best.evidence.not_proven:
        return []
    ways = ["--accuracy-tolerance allows a larger difference"]
    if best.constraints.accuracy.metric == "evaluate":
        ways.append("evaluate scatters less on more data")
    return [f"  to decide   {', '.join(ways)}"]


def processes_lines(best: BestConfig) -> list[str]:
    """Return the line on the processes that trained together; none for one."""
    text = processes_text(best)
    return [] if text is None else [f"  processes   {text}"]


def searched_lines(searched: Searched | None, changed: Mapping[str, Value]) -> list[str]:
    """Return lines on the part of the search space that was measured.

    `changed` are the settings of the answer that differ from the user's.
    """
    if searched is None:
        return []
    values = (f"{name} {', '.join(map(spelled, tried))}" for name, tried in searched.tried.items())
    lines = [
        f"  searched    {searched.measured} of {searched.configurations} configurations: "
        + ("; ".join(values) or "your settings alone")
    ]
    if searched.failed:
        lines.append(f"  failed      {searched.failed} more")
    # What only workers use, such as prefetch_factor, may have had one value wherever it was used.
    fixed = [
        f"{name} (always {spelled(changed[name])} where it was used)" if name in changed else name
        for name in searched.never_varied
    ]
    return [*lines, f"  not varied  {', '.join(fixed)}"] if fixed else lines


def throughput_lines(best: BestConfig) -> list[str]:
    """Return lines on both throughputs, on their energy if known, and on the arithmetic."""
    evidence = best.evidence
    lines = [
        f"  throughput  {evidence.baseline.samples_per_second:g} -> "
        f"{evidence.best.samples_per_second:g} {evidence.rate_unit} {best.measured_in}"
    ]
    steps = evidence.baseline.steps
    if steps is not None and steps.remark is not None:
        lines.append(f"  your steps  {steps.remark}")
    if (tokens := evidence.tokens_per_second) is not None:
        lines.append(f"              {tokens[0]:g} -> {tokens[1]:g} tokens/s")
    if (joules := evidence.joules_per_sample) is not None:
        lines.append(
            f"  energy      {joules[0]:g} -> {joules[1]:g} J a sample, of {best.energy_of}"
        )
    return [*lines, *arithmetic_lines(evidence)]


def arithmetic_lines(evidence: Evidence) -> list[str]:
    """Return the line on the use of the device's arithmetic; none if it is not known."""
    used = None if evidence.arithmetic is None else utilisation(evidence.arithmetic)
    return [] if used is None else [f"  arithmetic  {used}"]


def utilisation(arithmetic: Arithmetic) -> str | None:
    """Return the model FLOPs utilisation in words, to follow a subject; None if not known."""
    if arithmetic.mfu is None:
        return None
    percent = Decimal(f"{100 * arithmetic.mfu:.2g}")
    return (
        f"uses {percent:f} % of the matrix multiplication rate that this machine "
        f"reached in {arithmetic.number_format}"
    )


def accuracy_lines(accuracy: AccuracyEvidence) -> list[str]:
    """Return lines on the quality of the baseline and of the result, and on its probes."""
    if not accuracy.is_measured:
        return [f"  quality     {accuracy.not_measured_text}"]
    told = accuracy.difference_text or f"{accuracy.seeds} seeds"
    lines = [f"  judged by   {accuracy.judged_by}"] if accuracy.judged_by else []
    lines += [
        f"  {accuracy.metric:<11} {accuracy.baseline:g} -> {accuracy.best:g}, {told}",
        f"  allowed     {accuracy.allowed_text}",
    ]
    if accuracy.split_text:
        lines.append(f"  gradients   {accuracy.split_text}")
    return [*lines, f"  probes      {accuracy.probe_text}"] if accuracy.probe_text else lines


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
        if event.seconds is not None:
            data["seconds"] = readable(event.seconds)
        if event.script_start is not None:
            data["script_start_seconds"] = event.script_start[1]
    return json.dumps({"schema_version": SCHEMA_VERSION, **data})


def not_enough_result(error: NotSearchedEnoughError) -> str:
    """Return a search without enough trials as one JSON object for programs."""
    data = {"answer": "not searched enough", "reason": str(error), "measured": error.measured}
    return json.dumps(
        {"schema_version": SCHEMA_VERSION, **data, "time_budget": error.seconds or None}
    )


def last_round_line(before: PairedComparison, comparison: PairedComparison) -> str:
    """Return the line on the round between these two states of a comparison."""
    if len(comparison.repeated) > len(before.repeated):
        return void_line(len(comparison.ratios) + 1, comparison.repeated[-1])
    return round_line(comparison.ratios, comparison.interval, comparison.disturbed)


def comparison_line(options: ComparisonOptions, comparison: PairedComparison) -> str:
    """Return a sentence that says how much faster A is than B."""
    low, high = comparison.interval
    line = (
        f"{options.a.label} is {comparison.ratio:.2f}x {options.b.label} "
        f"({low:.2f} to {high:.2f}, {rounds_text(len(comparison.ratios), comparison.disturbed)})"
    )
    if options.b.config is not None or options.a.confirmed is None:
        return line
    low, high = options.a.confirmed
    state = "which holds" if options.is_met(comparison) else "which has gone"
    return f"{line}; it was confirmed as {low:.2f} to {high:.2f}, {state}"


def comparison_result(options: ComparisonOptions, comparison: PairedComparison) -> str:
    """Return a comparison as one JSON object for programs."""
    sides = {"a": (options.a, comparison.candidate), "b": (options.b, comparison.baseline)}
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "ratio": comparison.ratio,
        "ci95": list(comparison.interval),
        "rounds": len(comparison.ratios),
        "disturbed_rounds": comparison.disturbed,
        "repeated_rounds": len(comparison.repeated),
        "ratios": list(comparison.ratios),
        "confirmed_faster": comparison.is_faster,
        "still_holds": None if options.a.is_edited else options.is_met(comparison),
    }
    for name, (side, runs) in sides.items():
        data[name] = {
            "settings": side.label,
            "samples_per_second": median(run.samples_per_second for run in runs),
            "peak_memory_bytes": max(run.peak_memory_bytes for run in runs),
        }
    return json.dumps(data)
