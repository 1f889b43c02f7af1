"""Report on stdout: a table in a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.configuration.answer_words import not_proven_texts, start_text
from autotune.configuration.training_config import render
from autotune.console.answer_lines import (
    accuracy_lines,
    processes_lines,
    searched_lines,
    throughput_lines,
)
from autotune.report.data import ReportData
from autotune.report.explain import headline
from autotune.report.totals import failure_kinds, phases
from autotune.searching.trials.drift import conditions
from autotune.study.finished import FinishedTrial
from autotune.values.text import clean, size, span

_MOST_ROWS = 20
_NUMBERS = 6
# Line above the trials, whose rates are not those of the confirmation.
_CAPTION = "In the search:"
# Index of a column to the least terminal width at which it is shown.
_ROOM_FOR = {1: 56, 4: 72, 7: 72, 5: 100, 2: 110}
_PARETO = (4, 3)
"""Indices of memory and ratio."""
_REMARK = 7
"""Index of the remarks, which are shown below the settings on narrow terminals."""
_MARKS = {
    "baseline": "",
    "answer": "the answer",
    "feasible": "",
    "refused": "not confirmed",
    "memory": "infeasible",
    "accuracy": "infeasible",
    "failed": "infeasible",
}


def show_report(data: ReportData) -> None:
    """Print the result, the trials, the failures and the time by phase."""
    for line in before_table(data):
        _say(line)
    shown = chosen_trials(data)
    rows = [row_of(data, trial) for trial in shown]
    if sys.stdout.isatty():
        _print_table(_headers(data), rows)
    elif rows:
        for line in aligned([_headers(data), *rows]):
            _say(line)
    for line in after_table(data, len(shown)):
        _say(line)


def _headers(data: ReportData) -> tuple[str, ...]:
    rate = data.rate_unit
    return ("trial", rate, "95 % interval", "ratio", "memory", "seconds", "settings", "")


def print_pairs(rows: Sequence[tuple[str, str, str]]) -> None:
    """Print rows of a name and two cells, in columns."""
    if sys.stdout.isatty():
        table = Table(box=None, pad_edge=False, show_header=False)
        for row in rows:
            table.add_row(*(Text(clean(cell)) for cell in row))
        Console(file=sys.stdout, highlight=False).print(table)
        return
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    for name, one, other in rows:
        _say(f"{name:{widths[0]}}  {one:{widths[1]}}  {other}")


def before_table(data: ReportData) -> list[str]:
    """Return lines on the study and its result."""
    archive = data.archive
    lines = [f"study {archive.name} in {archive.storage}", *data.remarks, "", headline(data)]
    if data.best is not None:
        memory = data.best.constraints.memory
        lines += [
            *throughput_lines(data.best),
            *processes_lines(data.best),
            f"  memory      {memory.in_words}",
            *accuracy_lines(data.best.constraints.accuracy),
            *(f"  not proven  {text}" for text in not_proven_texts(data.best)),
        ]
    caption = [_CAPTION] if data.trials else []
    changed = {} if data.best is None else data.best.changed
    return [*lines, *searched_lines(data.searched, changed), "", *caption]


def after_table(data: ReportData, shown: int) -> list[str]:
    """Return lines on hidden and running trials, failures and time by phase."""
    lines = []
    if shown < len(data.trials):
        hidden = len(data.trials) - shown
        lines.append(f"{hidden} slower or infeasible trials are not shown; --csv has them all.")
    lines += _pareto_lines(data)
    running = [str(trial.number) for trial in data.archive.open if trial.state == "running"]
    if running:
        lines.append(f"running, or stopped hard: trial {', '.join(running)}")
    failures = failure_kinds(data)
    if failures:
        lines.append("\ndid not qualify:")
        lines += [f"  {len(one.trials)} x {one.label}: {one.example}" for one in failures]
    spent = phases(data)
    if spent:
        lines.append("\ntime:")
        lines += [f"  {span(phase.seconds):>12}  {phase.name}" for phase in spent]
    if data.script_start is not None:
        lines.append(f"  {start_text(data.script_start)}")
    return lines


def _pareto_lines(data: ReportData) -> list[str]:
    """Return lines on the Pareto-best trials; none if a single one is the fastest and smallest."""
    best = data.pareto_best
    if len(best) < 2:  # noqa: PLR2004 (nothing to weigh up)
        return []
    rows = [row_of(data, trial) for trial in best]
    widths = [max(len(row[at]) for row in rows) for at in _PARETO]
    told = (
        "  ".join(row[at].rjust(width) for at, width in zip(_PARETO, widths, strict=True))
        + f"  trial {row[0]}: {row[_NUMBERS]}"
        for row in rows
    )
    return ["\nless memory or more throughput (Pareto-best):", *(f"  {line}" for line in told)]


def chosen_trials(data: ReportData) -> list[FinishedTrial]:
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
    rate, bounds = details.samples_per_second, details.samples_per_second_ci95
    memory, seconds = details.peak_memory_bytes, details.seconds
    mark = _MARKS[data.standing(trial)]
    said = ": ".join(
        filter(None, (mark, trial.verdict.reason or data.candidate_log(trial).refused))
    )
    return (
        str(trial.number),
        "-" if rate is None else f"{rate:.1f}",
        "-" if bounds is None else f"{bounds[0]:.1f} to {bounds[1]:.1f}",
        "-" if ratio is None else f"{ratio:.2f}x",
        "-" if memory is None else size(memory),
        "-" if seconds is None else f"{seconds:.1f}",
        render(data.differences(trial.config)) or "your settings",
        "; ".join(filter(None, (said, *conditions(details)))),
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines: numbers right-aligned, the last two columns unpadded."""
    widths = [max(len(row[at]) for row in rows) for at in range(_NUMBERS)]
    lines = []
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*numbers, *filter(None, row[_NUMBERS:])]))
    return lines


def _print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console = Console(file=sys.stdout, highlight=False)
    shown = [at for at in range(len(headers)) if console.width >= _ROOM_FOR.get(at, 0)]
    if _REMARK not in shown:
        rows = [(*row[:-2], "\n".join(filter(None, row[-2:]))) for row in rows]
    table = Table(box=None, pad_edge=False)
    for at in shown:
        is_number = at < _NUMBERS
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(headers[at], justify=justify, no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(row[at])) for at in shown))
    console.print(table)


def _say(line: str) -> None:
    sys.stdout.write(clean(line) + "\n")
