"""Explain the result of a study in sentences: the changes, the limits, the other trials."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autotune.configuration.answer_words import headline as result
from autotune.configuration.answer_words import start_text
from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import render
from autotune.console.answer_lines import how_to_use
from autotune.knobs.base import spelled
from autotune.report.data import ReportData
from autotune.report.effects import Effect, KnobEffect
from autotune.study.finished import FinishedTrial
from autotune.values.measurement import STOPPED_EARLY

_RUNNERS_UP = 5


def explanation(data: ReportData) -> list[str]:
    """Return paragraphs: result, effect of each change, limits, other trials, failures."""
    return [" ".join(part) for part in _parts(data) if part]


def headline(data: ReportData) -> str:
    """Return the result in one sentence, or how far the search is."""
    return _headline_without_answer(data) if data.best is None else result(data.best)


def _change_sentences(effects: Iterable[KnobEffect], changed: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence on each change with a visible effect, then one on all other changes.

    Changes that were always tried together count as one; one that no trial shows has none.
    """
    shown = [(one, one.of(changed[one.knob])) for one in effects if one.knob in changed]
    found = [(one, effect) for one, effect in shown if effect is not None]
    yield from (_told_apart(one, effect) for one, effect in found if effect.is_significant)
    others = [_named_values(one, effect) for one, effect in found if not effect.is_significant]
    if others:
        yield f"No effect shown for each alone: {', '.join(others)}."


def _told_apart(one: KnobEffect, effect: Effect) -> str:
    verb, other = "is", f"{one.knob}={spelled(one.reference)}"
    if effect.together:
        verb, other = "are", "without them"
    low, high = effect.interval
    return (
        f"{_named_values(one, effect)} {verb} {effect.ratio:.2f}x as fast as {other} "
        f"({low:.2f} to {high:.2f}), everything else equal."
    )


def _named_values(one: KnobEffect, effect: Effect) -> str:
    """Return the values that share an effect; several were always tried together."""
    values = {one.knob: effect.value, **effect.together}
    named = " and ".join(f"{name}={spelled(value)}" for name, value in values.items())
    return f"{named} (always tried together)" if effect.together else named


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


def _parts(data: ReportData) -> Iterator[list[str]]:
    yield [headline(data)]
    yield list(data.remarks)
    if data.best is not None:
        yield list(_changes(data, data.best))
    yield [f"{name[0].upper()}{name[1:]}: {text}." for name, text in data.facts]
    text, commands = next_step(data)
    yield [text, f"{', or '.join(commands)}."] if commands else [text]
    yield from ([sentence] for sentence in _runners_up(data))
    if data.script_start is not None:
        yield [f"{start_text(data.script_start)}."]
    yield [
        f"{len(one.trials)} x {one.label}, first in trial {one.trials[0]}: {one.example}."
        for one in data.failures
    ]


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


def _changes(data: ReportData, best: BestConfig) -> Iterator[str]:
    changed = data.differences(best.training_config)
    if not changed:
        return
    yield f"Trial {best.provenance.trial} was confirmed: its rounds alternated with your settings."
    yield from _change_sentences(data.effects, changed)


def _runners_up(data: ReportData) -> Iterator[str]:
    """Yield a sentence for each of the next best trials, confirmation candidates first."""
    others = [t for t in data.trials[1:] if t.verdict.value and t is not data.answer]
    candidates = {} if data.confirmation is None else data.confirmation.candidates
    others.sort(key=lambda one: (one.number not in candidates, -(one.verdict.value or 0.0)))
    for trial in others[:_RUNNERS_UP]:
        yield f"Trial {trial.number} ({_named(data, trial)}) {_why_not(data, trial)}."


def _named(data: ReportData, trial: FinishedTrial) -> str:
    settings = render(data.differences(trial.config)) or "your settings"
    ratio = data.ratio(trial)
    return settings if ratio is None else f"{ratio:.2f}x, {settings}"


def _why_not(data: ReportData, trial: FinishedTrial) -> str:
    log = data.candidate_log(trial)
    if log.refused is not None:
        return f"was a candidate, but was not confirmed: {log.refused}"
    if log.set_aside_for is not None:
        return f"was a candidate; trial {log.set_aside_for} was confirmed instead"
    if not trial.verdict.feasible:
        return f"is infeasible: {trial.verdict.reason}"
    if STOPPED_EARLY in (trial.details.flags or ()):
        return "was stopped early: clearly slower than the best trial so far"
    if log.ratios is not None:
        return "was a candidate, but another was confirmed first"
    rival = data.answer or data.incumbent
    if rival is None or rival is trial:
        return "is the best so far"
    if (trial.verdict.value or 0.0) > (rival.verdict.value or 0.0):
        return "was faster in its trial, but was not confirmed in time"
    return f"was slower than trial {rival.number}"
