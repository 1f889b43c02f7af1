"""Write docs/benchmarks.md from the files in benchmarks/results.

    python -m benchmarks.page

A file holds one table: title, about, command (text, a list, or null where none is kept), machine,
load, columns and rows; notes and the day on which it was recorded where they are known. `sleeping`
names the rows, or is true for all, whose time is that of a sleep in the workload. Numbers stand on
the page as they stand in the file. To add a table, write a file and name it in SECTIONS.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks.md"
SECTIONS: Mapping[str, Sequence[str]] = {
    "Searches of real workloads": (
        "example_studies",
        "digits_cnn_budgets",
        "budget_real",
        "uneven",
        "dear_data",
        "reproduction",
        "repeat",
    ),
    "The search by replay": (
        "search_summary",
        "search_tables",
        "search_samplers",
        "search_seconds",
        "time_to_answer",
        "time_to_answer_parts",
        "more_time",
        "newer_knobs_trials",
        "newer_knobs_spaces",
        "first_proposals",
        "search_truth",
        "search_variants",
    ),
    "Other tools": ("rivals", "rivals_later", "rivals_four"),
    "Timing": ("overhead", "hosts", "ddp_settings", "blocks", "numerics"),
    "Settings": ("knobs", "knobs_compile"),
    "On a GPU": ("h200",),
    "Comparing": (
        "same_settings",
        "same_settings_watch",
        "neighbour",
        "confirmation_rule",
        "race_of_equals",
        "settings_taken_back",
        "require_faster",
    ),
    "Scripts": (
        "zoo",
        "script_or_model",
        "loss_recording",
        "run_overhead",
        "run_throughput",
        "compile_cache",
    ),
    "The tool itself": ("install", "startup", "report", "scaling"),
    "Notes": ("observations",),
}
_INTRODUCTION = """\
# Benchmarks

`python -m benchmarks.page` writes this page from `benchmarks/results/`. Each table has the
command that made it. An interval (low, high) is a 95 % interval,
unless its table says otherwise. An empty cell has no value. README and docs/results.md show the
results of "A zoo of scripts", "A script and a model.py of the same training", "The same search
again", "Your own training loop with the result", "Each setting changed by itself" and "Searches on
one H200".
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(benchmarks_page(), encoding="utf-8")


def benchmarks_page() -> str:
    """Return the text of docs/benchmarks.md."""
    parts = [_INTRODUCTION]
    for heading, names in SECTIONS.items():
        parts += [f"## {heading}\n", *(_table(_read(RESULTS / f"{name}.json")) for name in names)]
    return "\n".join(parts)


def _read(path: Path) -> dict[str, Any]:
    """Return a result, its numbers as text: 1.50 stays 1.50."""
    text = path.read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads(text, parse_float=str, parse_int=str)
    return result


def _table(result: Mapping[str, Any]) -> str:
    lines = [f"### {result['title']}", "", *_wrapped(result["about"]), "", *_command(result), ""]
    lines += [*_wrapped(_circumstances(result)), ""]
    if sleeping := result.get("sleeping"):
        lines += [*_wrapped(_warning(sleeping)), ""]
    lines += [_row(result["columns"]), _row(["---"] * len(result["columns"]))]
    lines += map(_row, result["rows"])
    if "notes" in result:
        lines += ["", *_wrapped(result["notes"])]
    return "\n".join(lines) + "\n"


def _command(result: Mapping[str, Any]) -> Iterator[str]:
    command = result["command"]
    if command is None:
        yield "No command is kept for this table."
    for line in [command] if isinstance(command, str) else command or ():
        yield f"    {line}"


def _circumstances(result: Mapping[str, Any]) -> str:
    day = f"Recorded {result['recorded']}. " if "recorded" in result else ""
    return f"{day}Machine: {result['machine']}. Load: {result['load']}."


def _warning(sleeping: Sequence[str] | bool) -> str:
    of = "the training" if sleeping is True else f"the training of {', '.join(sleeping)}"
    return (
        f"For a part of its time, {of} sleeps where another one reads or evaluates. Its ratios say "
        "nothing of a training that decodes or computes instead."
    )


def _row(cells: Sequence[str | None]) -> str:
    return f"| {' | '.join(cell or '' for cell in cells)} |"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 100, break_on_hyphens=False, break_long_words=False)


if __name__ == "__main__":
    main()
