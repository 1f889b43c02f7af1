"""Sentences on an answer that several outputs share."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autotune.configuration.best_config import BestConfig, Evidence
from autotune.configuration.constraints import bounded
from autotune.configuration.evidence import AccuracyEvidence, NotProven, PredictedRun
from autotune.configuration.mismatch import edited
from autotune.configuration.training_config import TrainingConfig, render
from autotune.knobs.base import spelled
from autotune.values.text import disturbed_sentence, span


def keep_headline(evidence: Evidence) -> str:
    """Return the headline for keeping the user's settings, with its reason."""
    reason = keep_reason(evidence)
    return f"Keep your settings: {reason[0].lower()}{reason[1:]}"


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
    reason += disturbed_sentence(evidence.speedup.disturbed_rounds)
    if count:
        faster = "1 faster one is" if count == 1 else f"{count} faster ones are"
        reason += f" {faster} not proven to train as well."
    if failed:
        was = "was" if failed == 1 else "were"
        reason += f" {failed} that {was} faster in the trials could not be confirmed."
    return reason


def course_changes(best: BestConfig) -> str:
    """Return the changed settings that change the course of training, to follow "changed"."""
    own = TrainingConfig.of(best.evidence.baseline.config)
    changed = best.training_config.differences(own)
    names = [name for name in changed if best.effect(name) == "statistics"]
    words = ["the batch size" if name == "batch_size" else name for name in names]
    return " and ".join(words) or "the batch size"


def processes_text(best: BestConfig) -> str | None:
    """Return how many processes trained together, and on what; None for one."""
    if best.processes is None:
        return None
    config = best.training_config
    samples = best.processes * config.effective_batch
    size, steps = config["batch_size"], int(config["accumulation_steps"] or 1)
    accumulated = "" if steps == 1 else f" x {steps} batches"
    hosts = "" if best.processes_per_host is None else f", at most {best.processes_per_host} a host"
    return (
        f"{best.processes} processes{hosts}, a step of {samples} samples: batch_size "
        f"{size}{accumulated} in each"
    )


def not_proven_texts(best: BestConfig) -> list[str]:
    """Return a clause on each variable that nothing read back, and on faster trials left open.

    These were not proven accurate enough, or could not be confirmed.
    """
    metric, open_ones = best.constraints.accuracy.metric, best.evidence.not_proven
    failed = [
        f"trial {one.trial} ({render(one.changed)}) was faster in its trial, but could not be "
        f"confirmed: {one.reason}"
        for one in best.evidence.not_confirmed
    ]
    unread = [
        f"env {name.removeprefix('env.')}={spelled(best.config.get(name))}: nothing read it back"
        for name in best.evidence.not_read_back or ()
    ]
    return unread + failed + [undecided_text(metric, one) for one in open_ones]


def undecided_text(metric: str, one: NotProven) -> str:
    """Return a clause on a faster trial that was not proven accurate enough."""
    return (
        f"trial {one.trial} ({render(one.changed)}) was faster in its trial, but {metric} "
        f"{bounded(one.quality, one.bound)} is not proven to keep the limit {one.limit:.6g} "
        f"({one.seeds} seeds)"
    )


def learning_rate_text(best: BestConfig) -> str | None:
    """Return what became of the learning rate where a step has other samples; None elsewhere."""
    own = TrainingConfig.of(best.evidence.baseline.config).effective_batch
    new, factor = best.as_measured().training_config.effective_batch, best.lr_scaling.factor
    if new == own:
        return None
    if factor != 1:
        return f"times {factor:g}; batch {own} -> {new}"
    return f"unchanged; batch {own} -> {new}: check it"


def pays_back_text(best: BestConfig, seconds: float | None) -> str | None:
    """Return when faster settings have paid for the search and their slower start; None if never.

    `seconds` are those of the search; None if not known.
    """
    evidence, gain = best.evidence, best.evidence.speedup.ratio - 1
    if seconds is None or best.keeps_baseline or gain <= 0:
        return None
    if (run := evidence.predicted_run) is not None:
        return _runs_until(seconds, run)
    rates = evidence.baseline.samples_per_second, evidence.best.samples_per_second
    start = max(0.0, evidence.break_even_samples * (1 / rates[0] - 1 / rates[1]))
    return f"after {span((seconds + start) / gain)} of training (the search took {span(seconds)})"


def _runs_until(seconds: float, run: PredictedRun) -> str | None:
    """Return after how many runs of known length a search has paid; None if never."""
    saved = run.baseline_seconds - run.best_seconds
    if saved <= 0:
        return None
    if saved >= seconds:
        total = f"{span(seconds)} of search + {span(run.best_seconds)}"
        return f"in the first run: {total}, instead of {span(run.baseline_seconds)}"
    runs = math.ceil(seconds / saved)
    return f"after {runs} runs (the search took {span(seconds)}, each run saves {span(saved)})"


def start_text(seconds: tuple[float, float]) -> str:
    """Return how much of a search's seconds its script's starts took, as text."""
    whole, start = seconds
    return f"of {span(whole)}, {span(start)} were the script's start"


def explained(best: BestConfig) -> str:
    """Return a few lines: changed settings, speed-up, quality, what is not proven, remarks."""
    answer = best.as_measured()
    evidence, accuracy = answer.evidence, answer.constraints.accuracy
    mode = []
    if answer.training_config["deterministic"]:
        mode = ["measured, and applied, in torch's deterministic mode"]
    last = [f"not proven: {text}" for text in not_proven_texts(answer)]
    last += [f"edited since the search: {text}" for text in edited(best)]
    if answer.keeps_baseline:
        return "\n".join((keep_headline(evidence), *mode, *last))
    (low, high), ratio = evidence.speedup.ci95, evidence.speedup.ratio
    lines = [
        f"{ratio:.2f}x faster ({low:.2f} to {high:.2f}): {render(answer.changed)}",
        f"{evidence.baseline.samples_per_second:g} to {evidence.best.samples_per_second:g} "
        f"{evidence.rate_unit} {answer.measured_in}, on {answer.machine.device}",
    ]
    if (tokens := evidence.tokens_per_second) is not None:
        lines.append(f"{tokens[0]:g} to {tokens[1]:g} tokens/s")
    if (joules := evidence.joules_per_sample) is not None:
        lines.append(f"{joules[0]:g} to {joules[1]:g} J a sample, of {answer.energy_of}")
    if (processes := processes_text(answer)) is not None:
        lines.append(processes)
    lines += [*_quality(accuracy), *mode]
    if run := evidence.predicted_run:
        was, now = run.baseline_seconds, run.best_seconds
        length = f"{run.samples} {evidence.counted}"
        lines.append(f"a run of {length}, predicted: {was:g} s to {now:g} s")
    if (text := learning_rate_text(answer)) is not None:
        lines.append(f"learning rate {text}")
    if accuracy.needs_full_run:
        changes = course_changes(answer)
        lines.append(f"{changes} changed: check one full training before you rely on it")
    return "\n".join((*lines, *last))


def _quality(accuracy: AccuracyEvidence) -> Iterator[str]:
    """Yield lines on the quality: both values, the loss allowed, what the probes can tell."""
    if not accuracy.is_measured:
        yield f"quality {accuracy.not_measured_text}"
        return
    yield (
        f"{accuracy.metric}: {accuracy.baseline:g} to {accuracy.best:g} after "
        f"{accuracy.samples} samples, {accuracy.difference_text or f'{accuracy.seeds} seeds'}"
    )
    yield f"allowed: {accuracy.allowed_text}"
    if accuracy.split_text:
        yield f"gradients: {accuracy.split_text}"
    if accuracy.probe_text:
        yield f"probes: {accuracy.probe_text}"
