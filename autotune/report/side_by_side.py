"""Two studies side by side: what each found, on which machine, and where the answers differ."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.configuration.best_config import BestConfig
from autotune.knobs.base import spelled
from autotune.report.data import ReportData
from autotune.values.text import size, span

_UNKNOWN = "-"


def side_by_side(first: ReportData, second: ReportData) -> list[tuple[str, str, str]]:
    """Return rows of a name and a cell for each study; settings only where the answers differ."""
    facts = zip(_facts(first), _facts(second), strict=True)
    rows = [(name, one, other) for (name, one), (_, other) in facts]
    return [*rows, *_settings(first, second)]


def _facts(data: ReportData) -> Iterator[tuple[str, str]]:
    best = data.best
    yield "study", data.archive.name
    yield "machine", _machine(best)
    yield "answer", _answer(best)
    rates = None if best is None else (best.evidence.baseline, best.evidence.best)
    yield "your settings", _rate(data, None if rates is None else rates[0].samples_per_second)
    yield "the answer", _rate(data, None if rates is None else rates[1].samples_per_second)
    yield "peak memory", _UNKNOWN if best is None else size(best.constraints.memory.peak_bytes)
    yield "quality", _quality(best)
    yield "trials", str(len(data.trials))
    seconds = sum(trial.details.seconds or 0.0 for trial in data.trials)
    yield "in trials", span(seconds) if seconds else _UNKNOWN


def _machine(best: BestConfig | None) -> str:
    if best is None:
        return _UNKNOWN
    return f"{best.machine.device} ({best.machine.cpu}), torch {best.machine.torch}"


def _answer(best: BestConfig | None) -> str:
    if best is None:
        return "none yet"
    if best.keeps_baseline:
        return "keep your settings"
    (low, high), ratio = best.evidence.speedup.ci95, best.evidence.speedup.ratio
    return f"{ratio:.2f}x ({low:.2f} to {high:.2f})"


def _rate(data: ReportData, rate: float | None) -> str:
    return _UNKNOWN if rate is None else f"{rate:,.1f} {data.rate_unit}"


def _quality(best: BestConfig | None) -> str:
    if best is None or not best.constraints.accuracy.is_measured:
        return _UNKNOWN
    accuracy = best.constraints.accuracy
    return f"{accuracy.metric} {accuracy.baseline:.4g} -> {accuracy.best:.4g}"


def _settings(first: ReportData, second: ReportData) -> Iterator[tuple[str, str, str]]:
    """Yield the settings in which the answers differ; none where one is missing."""
    if first.best is None or second.best is None:
        return
    one, other = first.best.training_config, second.best.training_config
    for name in one.differences(other):
        yield name, spelled(one[name]), spelled(other[name])
