"""A result in words, the same in every output: a headline, and facts with a name each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from autotune.configuration import evidence as parts
from autotune.configuration.best_config import BestConfig, Evidence
from autotune.configuration.constraints import inconclusive
from autotune.configuration.mismatch import edited
from autotune.configuration.training_config import TrainingConfig, render
from autotune.knobs.base import Value, spelled
from autotune.values.text import rounds_text, span

Fact = tuple[str, str]
"""Name of what was measured, and the text on it."""


def headline(best: BestConfig) -> str:
    """Return the result in one sentence: the confirmed speed-up, or why to keep the settings."""
    if best.keeps_baseline:
        reason = keep_reason(best.evidence)
        return f"Keep your settings: {reason[0].lower()}{reason[1:]}"
    speedup, (low, high) = best.evidence.speedup, best.evidence.speedup.ci95
    rounds = rounds_text(speedup.rounds, speedup.disturbed_rounds)
    faster = "faster" if best.evidence.time_to_loss is None else "faster to the loss"
    return (
        f"{speedup.ratio:.2f}x {faster} than your settings ({low:.2f} to {high:.2f}, {rounds}): "
        f"{render(best.changed)}"
    )


def facts(best: BestConfig) -> Iterator[Fact]:
    """Yield what was measured of a result, and what to check."""
    evidence = best.evidence
    disturbed, rounds = evidence.speedup.disturbed_rounds or 0, evidence.speedup.rounds
    if disturbed > rounds / 2:
        yield "busy", "other programs disturbed most rounds: search again on an idle machine"
    yield from _rates(best)
    if (used := evidence.arithmetic) is not None and used.mfu is not None:
        percent = Decimal(f"{100 * used.mfu:.2g}")
        rate = f"the matrix multiplication rate measured here in {used.number_format}"
        yield "arithmetic", f"{percent:f} % of {rate}"
    if best.processes is not None:
        yield "processes", _processes_text(best, best.processes)
    yield "memory", best.constraints.memory.in_words
    yield from _quality(best)
    if best.training_config["deterministic"]:
        yield "mode", "torch's deterministic mode, when measured and when applied"
    if run := evidence.predicted_run:
        spans = f"{span(run.baseline_seconds)} -> {span(run.best_seconds)}"
        yield "run", f"{spans} for {run.samples} {evidence.counted} (predicted)"
    if (text := _learning_rate_text(best)) is not None:
        yield "lr", text
    if best.constraints.accuracy.needs_full_run:
        yield "check", f"one full training before you rely on it: {_course_changes(best)} changed"
    yield from _open_facts(best)
    if evidence.not_proven:
        ways = ["--accuracy-tolerance allows a larger difference"]
        if best.constraints.accuracy.metric == "evaluate":
            ways.append("evaluate() is less noisy on more data")
        yield "to decide", ", ".join(ways)


def _rates(best: BestConfig) -> Iterator[Fact]:
    """Yield facts on the throughput of both settings, and on what follows from it."""
    evidence = best.evidence
    own, new, steps = evidence.baseline, evidence.best, evidence.baseline.steps
    rates = _change(best, own.samples_per_second, new.samples_per_second)
    yield "throughput", f"{rates} {evidence.rate_unit} {best.measured_in}"
    yield from _gains(evidence)
    if evidence.time_to_loss is not None:
        yield "to the loss", evidence.time_to_loss.in_words(evidence.counted)
    if steps is not None and steps.remark is not None:
        yield "your steps", steps.remark
    if (joules := evidence.joules_per_sample) is not None:
        yield "energy", f"{_change(best, *joules)} J per sample ({best.energy_of})"


def _change(best: BestConfig, own: float, new: float) -> str:
    """Return what was measured of both settings, or of the user's alone if these are kept."""
    return f"{own:g}" if best.keeps_baseline else f"{own:g} -> {new:g}"


def _gains(evidence: Evidence) -> Iterator[Fact]:
    """Yield facts on what the settings of a result give, and on those that were taken back."""
    if evidence.gains:
        yield "each gives", "; ".join(map(gain_text, evidence.gains))
    if evidence.taken_back is not None:
        yield "left out", f"{gain_text(evidence.taken_back)}, not beyond the noise"
    if evidence.not_tried_without:
        left = ", ".join(evidence.not_tried_without)
        yield "together", f"the result was not timed without {left}"


def gain_text(gain: parts.Gain) -> str:
    """Return settings, and the speed-up that they give with its interval."""
    return f"{render(gain.settings)} {gain.ratio:.2f}x ({gain.ci95[0]:.2f} to {gain.ci95[1]:.2f})"


def _quality(best: BestConfig) -> Iterator[Fact]:
    """Yield facts on the quality of the baseline and of the result, and on its probes."""
    accuracy = best.constraints.accuracy
    if not accuracy.is_measured:
        yield "quality", accuracy.not_measured_text
        return
    if accuracy.compared_by:
        yield "metric", accuracy.compared_by
    if best.keeps_baseline:
        yield "quality", f"{accuracy.metric} {accuracy.baseline:g}"
        return
    values = f"{accuracy.metric} {accuracy.baseline:g} -> {accuracy.best:g}"
    yield "quality", f"{values}, {accuracy.difference_text or f'{accuracy.seeds} seeds'}"
    yield "allowed", accuracy.allowed_text
    if accuracy.split_text:
        yield "gradients", accuracy.split_text
    if accuracy.probe_text:
        yield "trainings", accuracy.probe_text


def searched_facts(searched: parts.Searched | None, changed: Mapping[str, Value]) -> Iterator[Fact]:
    """Yield facts on the measured part of the search space; none if it is not known.

    `changed` are the settings of the result that differ from the user's.
    """
    if searched is None:
        return
    values = (f"{name} {', '.join(map(spelled, tried))}" for name, tried in searched.tried.items())
    measured = f"{searched.measured} of {searched.configurations} configurations"
    yield "searched", f"{measured}: {'; '.join(values) or 'only your settings'}"
    if searched.failed:
        yield "failed", f"{searched.failed} more"
    # What only workers use, such as prefetch_factor, may have had one value wherever it was used.
    fixed = [
        f"{name} (always {spelled(changed[name])} where it was used)" if name in changed else name
        for name in searched.never_varied
    ]
    if fixed:
        yield "not tried", "other values of " + ", ".join(fixed)


def fact_lines(found: Iterable[Fact]) -> list[str]:
    """Return facts as lines of two columns."""
    return [f"  {name:<11} {text}" for name, text in found]


def explained(best: BestConfig) -> str:
    """Return the result in lines: headline, facts, and what was edited in the file since."""
    measured = best.as_measured()
    found = [*facts(measured), *searched_facts(measured.evidence.searched, measured.changed)]
    found += [("edited", f"since the search: {text}") for text in edited(best)]
    return "\n".join([headline(measured), *fact_lines(found)])


def keep_reason(evidence: Evidence) -> str:
    """Return why the user's settings are kept, to stand below such a headline.

    It names the configurations measured, and how many faster ones are not proven to train as well
    or could not be confirmed.
    """
    searched = evidence.searched
    count, failed = len(evidence.not_proven), len(evidence.not_confirmed)
    found = "was shown to be faster" if failed else "was faster beyond the noise"
    found = "that trains as well was shown to be faster" if count else found
    if searched is None:
        reason = f"Nothing {found}."
    elif not searched.measured:
        reason = "No other configuration was measured."
    else:
        plural = "" if searched.measured == 1 else "s"
        reason = f"Of {searched.measured} configuration{plural} measured, none {found}."
    if disturbed := evidence.speedup.disturbed_rounds:
        reason += f" {disturbed} of the rounds that show this were disturbed."
    if count:
        faster = "1 faster one is" if count == 1 else f"{count} faster ones are"
        reason += f" {faster} not proven to train as well."
    if failed:
        was = "was" if failed == 1 else "were"
        reason += f" {failed} that {was} faster in the trials could not be confirmed."
    return reason


def _course_changes(best: BestConfig) -> str:
    """Return the names of changed settings that change the course of training."""
    names = [name for name in best.changed if best.effect(name) == "statistics"]
    words = ["the batch size" if name == "batch_size" else name for name in names]
    return " and ".join(words) or "the batch size"


def _processes_text(best: BestConfig, count: int) -> str:
    """Return how many processes trained together, and on how many samples a step."""
    config = best.training_config
    size, steps = config["batch_size"], int(config["accumulation_steps"] or 1)
    accumulated = "" if steps == 1 else f" x {steps} batches"
    samples = count * config.effective_batch
    return f"{count}, {samples} samples a step: batch_size {size}{accumulated} in each"


def _open_facts(best: BestConfig) -> Iterator[Fact]:
    """Yield facts on variables that nothing read back, and on faster trials that were left open."""
    for name in best.evidence.not_read_back or ():
        variable = f"{name.removeprefix('env.')}={spelled(best.config.get(name))}"
        yield "unread", f"env {variable}: nothing read it back"
    for one in best.evidence.not_confirmed:
        changed = render(one.changed)
        yield "unconfirmed", f"trial {one.trial} ({changed}) was faster in the search: {one.reason}"
    for open_one in best.evidence.not_proven:
        yield "not proven", undecided_text(best.constraints.accuracy.metric, open_one)


def undecided_text(metric: str, one: parts.NotProven) -> str:
    """Return a clause on a faster trial whose accuracy is inconclusive."""
    why = inconclusive(metric, (one.quality, one.bound), one.limit, one.seeds)
    return f"trial {one.trial} ({render(one.changed)}) was faster, but is inconclusive: {why}"


def _learning_rate_text(best: BestConfig) -> str | None:
    """Return how the learning rate follows a new effective batch; None if that is unchanged."""
    own = TrainingConfig.of(best.evidence.baseline.config).effective_batch
    new, factor = best.as_measured().training_config.effective_batch, best.lr_scaling.factor
    if new == own:
        return None
    if factor != 1:
        return f"times {factor:g}, for a batch of {new} instead of {own}"
    return f"unchanged, for a batch of {new} instead of {own}: check it, or use --lr-scaling"


def pays_back_text(best: BestConfig, seconds: float | None) -> str | None:
    """Return when faster settings have paid off the search and their slower start; None if never.

    `seconds` are those of the search; None if not known.
    """
    evidence, gain = best.evidence, best.evidence.speedup.ratio - 1
    if seconds is None or best.keeps_baseline or gain <= 0:
        return None
    if (run := evidence.predicted_run) is not None:
        return _runs_until(seconds, run)
    rates = evidence.baseline.samples_per_second, evidence.best.samples_per_second
    start = max(0.0, (evidence.break_even_samples or 0) * (1 / rates[0] - 1 / rates[1]))
    return f"after {span((seconds + start) / gain)} of training (the search took {span(seconds)})"


def _runs_until(seconds: float, run: parts.PredictedRun) -> str | None:
    """Return after how many runs of known length a search has paid off; None if never."""
    saved = run.baseline_seconds - run.best_seconds
    if saved <= 0:
        return None
    if saved >= seconds:
        total = f"{span(seconds)} of search + {span(run.best_seconds)}"
        return f"in the first run: {total}, instead of {span(run.baseline_seconds)}"
    runs = math.ceil(seconds / saved)
    return f"after {runs} runs (the search took {span(seconds)}, each run saves {span(saved)})"
