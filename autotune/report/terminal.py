"""Report on stdout: a table in a terminal, plain lines in a pipe; the result in one sentence."""

from __future__ import annotations

import shlex

from autotune.configuration import best_config
from autotune.configuration.training_config import render
from autotune.console.lines import how_to_use
from autotune.console.progress import answer, print_rows
from autotune.report.data import ReportData
from autotune.searching.trials.drift import conditions
from autotune.study.facts import FinishedTrial
from autotune.values.text import size, span

_MOST_ROWS = 20
# Cells with numbers that the table has; the page has the others, too.
_NUMBERS = (0, 1, 3, 4)
_MARKS: dict[str, str] = {
    "answer": "the result",
    "refused": "not confirmed",
    **dict.fromkeys(("memory", "accuracy", "failed"), "rejected"),
}
_UNKNOWN = "-"


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
