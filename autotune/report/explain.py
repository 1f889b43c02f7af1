"""Explain the result of a study in sentences: the changes, the limits, the other trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autotune.configuration.answer_words import (
    keep_headline,
    not_proven_texts,
    processes_text,
    start_text,
)
from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import render
from autotune.console.answer_lines import utilisation
from autotune.knobs.base import spelled
from autotune.report.data import ReportData
from autotune.report.effects import Effect, KnobEffect
from autotune.study.finished import FinishedTrial
from autotune.values.measurement import STOPPED_EARLY
from autotune.values.text import rounds_text, size

_RUNNERS_UP = 5
_PROBES = {
    "exact": "its settings change no more than another run of yours does",
    "gate": "a numerics check found only rounding errors",
    "probe": "accuracy probes trained both on equally many samples",
    "gate and probe": "a numerics check found only rounding errors, and accuracy probes trained "
    "both on equally many samples",
}


def explanation(data: ReportData) -> list[str]:
    """Return paragraphs: result, effect of each change, limits, other trials, failures."""
    return [" ".join(part) for part in _parts(data) if part]


def headline(data: ReportData) -> str:
    """Return the result in one sentence."""
    best = data.best
    if best is None:
        return _headline_without_answer(data)
    if best.keeps_baseline:
        return keep_headline(best.evidence)
    speedup = best.evidence.speedup
    low, high = speedup.ci95
    return (
        f"{speedup.ratio:.2f}x faster than your settings "
        f"({low:.2f} to {high:.2f}, {rounds_text(speedup.rounds, speedup.disturbed_rounds)}): "
        f"{render(data.differences(best.training_config))}"
    )


def _change_sentences(effects: Iterable[KnobEffect], changed: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence on each change that trials tell apart, then one on all other changes.

    Changes that were always tried together count as one; one that no trial shows has none.
    """
    shown = [(one, one.of(changed[one.knob])) for one in effects if one.knob in changed]
    found = [(one, effect) for one, effect in shown if effect is not None]
    yield from (_told_apart(one, effect) for one, effect in found if effect.is_told_apart)
    others = [_named_values(one, effect) for one, effect in found if not effect.is_told_apart]
    if others:
        yield f"Not told apart from no change: {', '.join(others)}."


def _told_apart(one: KnobEffect, effect: Effect) -> str:
    makes, other = "makes", f"of {spelled(one.reference)}"
    if effect.together:
        makes, other = "make", "without them"
    low, high = effect.interval
    return (
        f"{_named_values(one, effect)} {makes} {effect.ratio:.2f} times the rate {other} "
        f"({low:.2f} to {high:.2f}), other settings equal."
    )


def _named_values(one: KnobEffect, effect: Effect) -> str:
    """Return the values that an effect is of; of several, it says that no trial parts them."""
    values = {one.knob: effect.value, **effect.together}
    named = " and ".join(f"{name}={spelled(value)}" for name, value in values.items())
    return f"{named} (always tried together)" if effect.together else named


def _parts(data: ReportData) -> Iterator[list[str]]:
    yield [headline(data)]
    yield list(data.remarks)
    if data.best is not None:
        yield list(_changes(data, data.best))
        yield list(_limits(data.best))
    yield list(_searched(data))
    yield from ([sentence] for sentence in _runners_up(data))
    if data.script_start is not None:
        text = start_text(data.script_start)
        yield [f"{text[0].upper()}{text[1:]}."]
    yield [
        f"{len(one.trials)} x {one.label}, first in trial {one.trials[0]}: {one.example}."
        for one in data.failures
    ]


def _headline_without_answer(data: ReportData) -> str:
    running = [trial for trial in data.archive.open if trial.state == "running"]
    state = "A trial is running, or was stopped hard." if running else "It can be continued."
    if not data.trials:
        return f"No answer yet: no trial has ended. {state}"
    incumbent = data.incumbent
    if incumbent is None:
        return "No answer: no trial is feasible, your own settings included."
    if len(data.trials) == 1:
        return f"No answer yet: only your own settings are measured. {state}"
    if incumbent is data.baseline:
        tried = f"of {len(data.trials)} trials, none is faster than your settings"
        return f"No answer yet: {tried}. {state}"
    ratio = data.ratio(incumbent)
    factor = "" if ratio is None else f", {ratio:.2f}x your settings"
    return (
        f"No answer yet: of {len(data.trials)} trials, trial {incumbent.number} is the "
        f"fastest{factor}. Nothing is confirmed. {state}"
    )


def _changes(data: ReportData, best: BestConfig) -> Iterator[str]:
    changed = data.differences(best.training_config)
    if not changed:
        return
    yield f"Trial {best.provenance.trial} was confirmed: it was timed in turns with your settings."
    yield from _change_sentences(data.effects, changed)


def _limits(best: BestConfig) -> Iterator[str]:
    memory, accuracy = best.constraints.memory, best.constraints.accuracy
    if (processes := processes_text(best)) is not None:
        yield f"It trained in {processes}."
    if (tokens := best.evidence.tokens_per_second) is not None:
        yield f"Tokens/s: {tokens[0]:g} with your settings, {tokens[1]:g} with the answer's."
    if (joules := best.evidence.joules_per_sample) is not None:
        yield (
            f"A sample takes {joules[0]:g} J of {best.energy_of} with your settings, "
            f"{joules[1]:g} J with the answer's."
        )
    yield f"It takes {size(memory.peak_bytes)} of the {size(memory.limit_bytes)} allowed."
    if accuracy.is_measured:
        yield f"{_quality(best)} Allowed is {accuracy.allowed_text}."
        if text := accuracy.split_text:
            yield f"Gradients: {text}."
        if accuracy.probe_text:
            yield f"Probes: {accuracy.probe_text}."
        yield from (f"{text[0].upper()}{text[1:]}." for text in not_proven_texts(best))
    else:
        yield f"Its quality was {accuracy.not_measured_text}."
    arithmetic = best.evidence.arithmetic
    if arithmetic is not None and (used := utilisation(arithmetic)) is not None:
        yield f"It {used}."


def _quality(best: BestConfig) -> str:
    """Return a sentence on the quality of the answer, by what was measured of it."""
    accuracy = best.constraints.accuracy
    told, probes = accuracy.difference_text, _PROBES[accuracy.evidence]
    if best.keeps_baseline:
        return f"Your {accuracy.metric} is {accuracy.baseline:g}."
    if accuracy.evidence == "gate" and told:
        return f"Its {accuracy.metric} was {told}, where yours is {accuracy.baseline:g}: {probes}."
    return (
        f"Its {accuracy.metric} is {accuracy.best:g} where yours is {accuracy.baseline:g}"
        f"{told and f', {told}'}: {probes}."
    )


def _searched(data: ReportData) -> Iterator[str]:
    """Yield sentences on the measured part of the search space."""
    searched = data.searched
    if searched is None:
        return
    yield f"{searched.measured} of {searched.configurations} configurations were measured."
    values = (f"{name} {', '.join(map(spelled, tried))}" for name, tried in searched.tried.items())
    if searched.tried:
        yield f"Tried: {'; '.join(values)}."
    if searched.never_varied:
        yield f"Never varied: {', '.join(searched.never_varied)}."


def _runners_up(data: ReportData) -> Iterator[str]:
    """Yield a sentence for each of the next best trials, confirmation candidates first."""
    others = [t for t in data.trials[1:] if t.verdict.value and t is not data.answer]
    others.sort(key=lambda trial: (not data.was_candidate(trial), -(trial.verdict.value or 0.0)))
    for trial in others[:_RUNNERS_UP]:
        yield f"Trial {trial.number} ({_named(data, trial)}) {_why_not(data, trial)}."


def _named(data: ReportData, trial: FinishedTrial) -> str:
    settings = render(data.differences(trial.config)) or "your settings"
    ratio = data.ratio(trial)
    return settings if ratio is None else f"{ratio:.2f}x, {settings}"


def _why_not(data: ReportData, trial: FinishedTrial) -> str:
    log = data.candidate_log(trial)
    if log.refused is not None:
        return f"was a candidate and was not confirmed: {log.refused}"
    if log.set_aside_for is not None:
        return f"was a candidate, set aside for trial {log.set_aside_for}"
    if not trial.verdict.feasible:
        return f"is infeasible: {trial.verdict.reason}"
    if STOPPED_EARLY in (trial.details.flags or ()):
        return "was stopped early, clearly slower than the best trial then"
    if log.ratios is not None:
        return "was a candidate, and another was confirmed first"
    return _by_interval(data, trial)


def _by_interval(data: ReportData, trial: FinishedTrial) -> str:
    """Return how the trial compares with the result, or the incumbent, by their intervals."""
    rival = data.answer or data.incumbent
    if rival is None or rival is trial:
        return "is the best so far"
    mine, theirs = data.ratio_interval(trial), data.ratio_interval(rival)
    if mine is None or theirs is None:
        return f"was slower than trial {rival.number}"
    if mine[1] < theirs[0]:
        return f"is slower than trial {rival.number} beyond both intervals"
    if (trial.verdict.value or 0.0) > (rival.verdict.value or 0.0):
        return "was faster in its trial, but its confirmation did not begin or did not end"
    return f"was slower than trial {rival.number}, though their intervals overlap"
