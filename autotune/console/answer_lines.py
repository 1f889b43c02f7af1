"""Render the result of a search or a comparison: lines for people, one JSON object for programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from autotune.comparison.compare import ComparisonOptions
from autotune.comparison.rounds import PairedComparison
from autotune.configuration import answer_words
from autotune.configuration.training_config import render
from autotune.console.event_lines import round_line, void_line
from autotune.console.plan_lines import command_words
from autotune.searching.run.events import Answered, NothingFeasible
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.text import by_reason, readable, rounds_text

SCHEMA_VERSION = 1


def answer_lines(event: Answered | NothingFeasible) -> list[str]:
    """Return the result of a search in a few lines."""
    if isinstance(event, NothingFeasible):
        reasons = [f"  {count} x {reason}" for reason, count in event.reasons.items()]
        return ["Nothing is feasible, not even your settings; best.yaml was not written:", *reasons]
    best = event.best
    searched = answer_words.searched_facts(best.evidence.searched, best.changed)
    return [
        answer_words.headline(best),
        *answer_words.fact_lines([*answer_words.facts(best), *searched, *_of_the_search(event)]),
    ]


def _of_the_search(event: Answered) -> Iterator[answer_words.Fact]:
    """Yield facts that only the search knows, and how to train with the result."""
    best, own = event.best, event.best.evidence.baseline.config
    for why, names in by_reason(event.own_settings).items():
        yield "not varied", f"{render({name: own.get(name) for name in names})}: {why}"
    if (text := answer_words.pays_back_text(best, event.seconds)) is not None:
        yield "pays back", text
    if event.remark is not None:
        yield "note", event.remark
    yield "written to", str(event.path)
    if best.keeps_baseline:
        return
    model, script = Path(best.provenance.model), event.script
    words = None if script is None else command_words(model, script)
    yield "use it", ", or ".join(how_to_use(event.path, words))


def how_to_use(path: Path, words: str | None) -> list[str]:
    """Return ways to train with a best.yaml; `words` call the script, None for a model.py."""
    quoted = shlex.quote(str(path))
    if words is not None:
        return [f"autotune run {quoted} {words}"]
    return [f"autotune.load({str(path)!r})", f"autotune export {quoted} --format python"]


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
    return json.dumps({"schema_version": SCHEMA_VERSION, **data})


def not_enough_result(error: NotSearchedEnoughError) -> str:
    """Return the end of a search without a result as one JSON object for programs."""
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
        f"{options.a.label} is {comparison.ratio:.2f}x as fast as {options.b.label} "
        f"({low:.2f} to {high:.2f}, {rounds_text(len(comparison.ratios), comparison.disturbed)})"
    )
    if options.b.config is not None or options.a.confirmed is None:
        return line
    low, high = options.a.confirmed
    state = "still holds" if options.is_met(comparison) else "no longer holds"
    return f"{line}; previously confirmed {low:.2f} to {high:.2f}, which {state}"


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
