"""Report on stdout: a table in a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from autotune.configuration.answer_words import fact_lines
from autotune.configuration.training_config import render
from autotune.console.tables import folded, print_rows
from autotune.knobs.base import spelled
from autotune.report.data import ReportData
from autotune.report.headline import headline, next_step
from autotune.searching.trials.drift import conditions
from autotune.study.finished import FinishedTrial
from autotune.values.text import clean, size, span

_MOST_ROWS = 20
# Cells with numbers that the table has; the page has the others, too.
_NUMBERS = (0, 1, 3, 4)
_MARKS: dict[str, str] = {
    "answer": "the result",
    "refused": "not confirmed",
    **dict.fromkeys(("memory", "accuracy", "failed"), "infeasible"),
}
_UNKNOWN = "-"


def show_report(data: ReportData) -> None:
    """Print the result, the trials, the failures and the time by phase."""
    _say(before_table(data))
    shown = _chosen_trials(data)
    if shown:
        _print_trials(data, shown)
    _say(after_table(data, len(shown)))


def before_table(data: ReportData) -> list[str]:
    """Return lines on the study and its result."""
    archive = data.archive
    lines = [f"study {archive.name} in {archive.storage}", *data.remarks, "", headline(data)]
    # The throughputs of trials are not those of the confirmation.
    caption = ["In the search:"] if data.trials else []
    text, commands = next_step(data)
    then = ("next", f"{text} {', or '.join(commands)}".strip())
    return [*lines, *fact_lines([*data.facts, then]), "", *caption]


def after_table(data: ReportData, shown: int) -> list[str]:
    """Return lines on hidden and running trials, failures and time by phase."""
    lines = []
    if shown < len(data.trials):
        hidden = len(data.trials) - shown
        lines.append(f"{hidden} slower or infeasible trials are not shown; --csv has them all.")
    running = [str(trial.number) for trial in data.archive.open if trial.state == "running"]
    if running:
        lines.append(f"unfinished (running or killed): trial {', '.join(running)}")
    if told := list(_effects(data)):
        lines += ["\neach setting by itself, in a model of all trials:", *told]
    if data.failures:
        lines.append("\nfailed and infeasible trials:")
        lines += [f"  {len(one.trials)} x {one.label}: {one.example}" for one in data.failures]
    if data.phases:
        lines.append("\ntime spent:")
        lines += [f"  {span(phase.seconds):>12}  {phase.name}" for phase in data.phases]
    return lines


def _effects(data: ReportData) -> Iterator[str]:
    """Yield a line on each change of the result, or of the fastest trial, with a visible effect."""
    found = data.answer or data.incumbent
    for one in data.effects:
        if found is not None and one.is_significant and found.config[one.knob] == one.value:
            low, high = one.interval
            yield (
                f"  {one.knob}={spelled(one.value)} is {one.ratio:.2f}x as fast as "
                f"{spelled(one.own)} ({low:.2f} to {high:.2f})"
            )


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
    rate, bounds = details.samples_per_second, details.samples_per_second_ci95
    memory, seconds = details.peak_memory_bytes, details.seconds
    mark, reason = _MARKS.get(data.standing(trial), ""), trial.verdict.reason
    log = data.candidate_log(trial)
    other = None if log.set_aside_for is None else f"confirmed trial {log.set_aside_for} instead"
    said = (mark, reason or log.refused or other)
    return (
        str(trial.number),
        _UNKNOWN if rate is None else f"{rate:.1f}",
        _UNKNOWN if bounds is None else f"{bounds[0]:.1f} to {bounds[1]:.1f}",
        _UNKNOWN if ratio is None else f"{ratio:.2f}x",
        _UNKNOWN if memory is None else size(memory),
        _UNKNOWN if seconds is None else f"{seconds:.1f}",
        render(data.differences(trial.config)) or "your settings",
        "; ".join(filter(None, (": ".join(filter(None, said)), *conditions(details)))),
    )


def _print_trials(data: ReportData, shown: Sequence[FinishedTrial]) -> None:
    """Print a row for each trial, with the remarks behind its settings."""
    cells = (row_of(data, trial) for trial in shown)
    rows = [(*(row[at] for at in _NUMBERS), "; ".join(filter(None, row[-2:]))) for row in cells]
    headers = ("trial", data.rate_unit, "speed-up", "memory", "settings")
    print_rows(rows, headers, len(_NUMBERS))


def _say(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{clean(line)}\n" for line in folded(lines))
