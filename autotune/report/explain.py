"""Why the winner won and why the others did not, in sentences, from what the study knows."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.best import NOT_MEASURED, BestConfig
from autotune.config import render
from autotune.knobs.base import spelled
from autotune.report.account import failure_kinds
from autotune.report.data import ReportData
from autotune.report.effects import KnobEffect, knob_effects
from autotune.text import size
from autotune.tuning.storing.study import FinishedTrial

_RUNNERS_UP = 5
_PROBES = {
    "exact": "it trains exactly what yours train",
    "gate": "it computes the same but for rounding, as a gate showed",
    "probe": "probes trained both on as many samples",
    "gate and probe": "a gate bounds the rounding, and probes trained both on as many samples",
}


def explanation(data: ReportData) -> list[str]:
    """Paragraphs: the answer, what each change does, the limits, the runners-up."""
    return [" ".join(part) for part in _parts(data) if part]


def headline(data: ReportData) -> str:
    """The answer in one sentence."""
    best = data.best
    if best is None:
        return _headline_without_answer(data)
    if best.keeps_baseline:
        return "Keep your settings: nothing was faster beyond the noise."
    low, high = best.evidence.speedup.ci95
    return (
        f"{best.evidence.speedup.ratio:.2f}x faster than your settings "
        f"({low:.2f} to {high:.2f}, {best.evidence.speedup.rounds} rounds): "
        f"{render(data.differences(best.training_config))}"
    )


def change_sentence(effect: KnobEffect, chosen: object) -> str:
    """What the trials say of one change; empty where they say nothing."""
    found = next((one for one in effect.effects if one.value == chosen), None)
    if found is None:
        return ""
    low, high = found.interval
    doubt = "" if low > 1 or high < 1 else ", which may be none"
    return (
        f"{effect.knob}={spelled(found.value)} makes {found.ratio:.2f} times the rate of "
        f"{spelled(effect.reference)} ({low:.2f} to {high:.2f}{doubt}), other settings equal."
    )


def _parts(data: ReportData) -> Iterator[list[str]]:
    yield [headline(data)]
    yield list(data.remarks)
    if data.best is not None:
        yield list(_changes(data, data.best))
        yield list(_limits(data.best))
    yield from ([sentence] for sentence in _runners_up(data))
    yield [
        f"{len(one.trials)} x {one.label}, first in trial {one.trials[0]}: {one.example}."
        for one in failure_kinds(data)
    ]


def _headline_without_answer(data: ReportData) -> str:
    running = [trial for trial in data.archive.open if trial.state == "running"]
    state = "A trial is running, or was stopped hard." if running else "It can be continued."
    if not data.trials:
        return f"No answer yet: no trial has ended. {state}"
    leader = data.leader
    if leader is None:
        return "No answer: no trial is feasible, your own settings included."
    if leader is data.baseline:
        return f"No answer yet: of {len(data.trials)} trials your own settings lead. {state}"
    ratio = data.ratio(leader)
    factor = "" if ratio is None else f", {ratio:.2f}x by the trials alone"
    return (
        f"No answer yet: of {len(data.trials)} trials, trial {leader.number} leads{factor}. "
        f"Nothing is confirmed. {state}"
    )


def _changes(data: ReportData, best: BestConfig) -> Iterator[str]:
    changed = data.differences(best.training_config)
    if not changed:
        return
    yield f"Trial {best.provenance.trial} won: it was timed against your settings in turns."
    baseline = data.baseline_config
    effects = knob_effects(data.trials, baseline) if baseline is not None else ()
    sentences = [change_sentence(one, changed[one.knob]) for one in effects if one.knob in changed]
    yield from filter(None, sentences)


def _limits(best: BestConfig) -> Iterator[str]:
    memory, accuracy = best.constraints.memory, best.constraints.accuracy
    yield f"It takes {size(memory.peak_bytes)} of {size(memory.limit_bytes)}."
    if accuracy.is_measured:
        yield (
            f"Its {accuracy.metric} is {accuracy.best:g} where yours is {accuracy.baseline:g}, "
            f"with a difference of {accuracy.tolerance:g} allowed: {_PROBES[accuracy.evidence]}."
        )
    else:
        yield f"Its quality was {NOT_MEASURED}."
    limits = best.evidence.limits
    if limits is None:
        return
    stage = "computing" if limits.compute <= limits.loader else "loading"
    bound = min(limits.compute, limits.loader)
    share = 100 * best.evidence.best.samples_per_second / bound
    yield (
        f"Alone, its loader would reach {limits.loader:g} samples/s and computing "
        f"{limits.compute:g}, so {stage} bounds it; it is at {share:.0f} % of that."
    )


def _runners_up(data: ReportData) -> Iterator[str]:
    """Who came next by value, and why that was not enough; those put to the test first."""
    others = [t for t in data.trials[1:] if t.verdict.value and t is not data.answer]
    others.sort(key=lambda trial: (not data.fate(trial), -(trial.verdict.value or 0.0)))
    for trial in others[:_RUNNERS_UP]:
        yield f"Trial {trial.number} ({_named(data, trial)}) {_why_not(data, trial)}."


def _named(data: ReportData, trial: FinishedTrial) -> str:
    settings = render(data.differences(trial.config)) or "your settings"
    ratio = data.ratio(trial)
    return settings if ratio is None else f"{ratio:.2f}x, {settings}"


def _why_not(data: ReportData, trial: FinishedTrial) -> str:
    fate = data.fate(trial)
    if "refused" in fate:
        return f"was put to the test and did not hold: {fate['refused']}"
    if "set_aside_for" in fate:
        return f"was put to the test and set aside for trial {fate['set_aside_for']}"
    if not trial.verdict.feasible:
        return f"is infeasible: {trial.verdict.reason}"
    if "raced" in trial.details.get("flags", ()):
        return "was given up early, clearly slower than the best one then"
    if "ratios" in fate:
        return "was put to the test, and another won first"
    return _by_interval(data, trial)


def _by_interval(data: ReportData, trial: FinishedTrial) -> str:
    """Compared with the answer, or with what leads, by the intervals of the trials."""
    rival = data.answer or data.leader
    if rival is None or rival is trial:
        return "leads"
    mine, theirs = data.ratio_interval(trial), data.ratio_interval(rival)
    if mine is None or theirs is None:
        return f"was slower than trial {rival.number}"
    if mine[1] < theirs[0]:
        return f"is slower than trial {rival.number} beyond both intervals"
    if (trial.verdict.value or 0.0) > (rival.verdict.value or 0.0):
        return "was faster in its trial, but not put to the test, or not to its end"
    return f"was slower than trial {rival.number}, though their intervals overlap"
