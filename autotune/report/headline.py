"""The result of a study in one sentence, or how far its search is, and what to do next."""

from __future__ import annotations

import shlex

from autotune.configuration.answer_words import headline as result
from autotune.console.answer_lines import how_to_use
from autotune.report.data import ReportData


def headline(data: ReportData) -> str:
    """Return the result in one sentence, or how far the search is."""
    return _headline_without_answer(data) if data.best is None else result(data.best)


def next_step(data: ReportData) -> tuple[str, list[str]]:
    """Return what to do now: a sentence, and commands of which one follows it."""
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


def _headline_without_answer(data: ReportData) -> str:
    running = [trial for trial in data.archive.open if trial.state == "running"]
    state = "A trial is running, or was killed." if running else "The search can be continued."
    if not data.trials:
        return f"No result yet: no trial has ended. {state}"
    incumbent = data.incumbent
    if incumbent is None:
        return "No result: no trial is feasible, not even your own settings."
    if len(data.trials) == 1:
        return f"No result yet: only your own settings were measured. {state}"
    if incumbent is data.baseline:
        tried = f"none of {len(data.trials)} trials is faster than your settings"
        return f"No result yet: {tried}. {state}"
    ratio = data.ratio(incumbent)
    factor = "" if ratio is None else f", {ratio:.2f}x your settings"
    return (
        f"No result yet: trial {incumbent.number} is the fastest of {len(data.trials)}{factor}. "
        f"Nothing is confirmed. {state}"
    )
