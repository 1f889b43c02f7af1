"""Render the result of a comparison: a sentence for people, JSON for programs."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from autotune.comparison.compare import ComparisonOptions
from autotune.comparison.rounds import PairedComparison
from autotune.console.answer_lines import SCHEMA_VERSION
from autotune.console.progress import round_line, void_line
from autotune.values.text import rounds_text


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
        "still_holds": options.is_met(comparison),
    }
    for name, (side, runs) in sides.items():
        data[name] = {
            "settings": side.label,
            "samples_per_second": median(run.samples_per_second for run in runs),
            "peak_memory_bytes": max(run.peak_memory_bytes for run in runs),
        }
    return json.dumps(data)
