"""What a comparison found, in a sentence for people and as JSON for programs."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from autotune.progress import SCHEMA_VERSION
from autotune.tuning.confirming.compare import ComparisonOptions
from autotune.tuning.confirming.rounds import Duel


def comparison_line(options: ComparisonOptions, duel: Duel) -> str:
    """How much faster A is than B, in a sentence."""
    low, high = duel.interval
    line = (
        f"{options.a.label} is {duel.ratio:.2f}x {options.b.label} "
        f"({low:.2f} to {high:.2f}, {len(duel.ratios)} rounds)"
    )
    if options.b.config is not None or options.a.confirmed is None:
        return line
    low, high = options.a.confirmed
    state = "which holds" if options.is_met(duel) else "which has gone"
    return f"{line}; it was confirmed as {low:.2f} to {high:.2f}, {state}"


def comparison_result(options: ComparisonOptions, duel: Duel) -> str:
    """A comparison as one JSON object for programs."""
    sides = {"a": (options.a, duel.candidate), "b": (options.b, duel.baseline)}
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "ratio": duel.ratio,
        "ci95": list(duel.interval),
        "rounds": len(duel.ratios),
        "ratios": list(duel.ratios),
        "confirmed_faster": duel.is_faster,
        "still_holds": options.is_met(duel),
    }
    for name, (side, runs) in sides.items():
        data[name] = {
            "settings": side.label,
            "samples_per_second": median(run.samples_per_second for run in runs),
            "peak_memory_bytes": max(run.peak_memory_bytes for run in runs),
        }
    return json.dumps(data)
