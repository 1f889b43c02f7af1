"""Diagrams of rates and seconds: limits of the stages, confirmed ratio, seconds by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from autotune.report.data import ReportData, readable_note
from autotune.report.svg import WIDTH, Scale, box, line, mark, markup, picture, text
from autotune.report.totals import Phase
from autotune.searching.run.diagnosis import limits_of
from autotune.values.text import span

_ROW, _BAR = 30.0, 16.0
_LABEL, _START, _END = 208.0, 220.0, 640.0
# The bar of a stage is cut off at this many times the rate of training and computing.
_BEYOND = 1.4
_SHADES = {
    "your settings: timing": 0,
    "your settings: accuracy": 1,
    "diagnosis": 2,
    "trials: building model and dataset": 3,
    "trials: warming up and compiling": 4,
    "trials: timing": 5,
    "trials: starting, accuracy, drift": 6,
    "trials that gave no number": 7,
    "validation of incumbents": 9,
    "confirmation": 8,
}


@dataclass(frozen=True, slots=True)
class Stage:
    """A rate to draw: of one stage alone, or of the whole training in one of its measurements."""

    group: str
    name: str
    rate: float
    kind: str


def stages_of(data: ReportData) -> list[Stage]:
    """Return rates of each stage at the user's settings, and of training at both settings."""
    found = []
    if data.stages is not None:
        limits = limits_of(data.stages)
        found += [Stage("your settings", name, rate, "limit-bar") for name, rate in limits.items()]
    own = _own_rate(data)
    if own:
        found.append(Stage("your settings", f"training, {_measured_in(data)}", own, "baseline"))
    best = data.best
    if best is None or best.keeps_baseline:
        return found
    rate = best.evidence.best.samples_per_second
    return [*found, Stage("the answer", f"training, {_measured_in(data)}", rate, "answer")]


def stages_alone(data: ReportData) -> Markup | None:
    """Draw the rate that each stage reaches alone, beside the rate of the whole training."""
    found = stages_of(data)
    if not any(stage.kind == "limit-bar" for stage in found):
        return None
    slow = [s.rate for s in found if s.kind != "limit-bar" or s.name == "compute"]
    most = _BEYOND * max(slow or [stage.rate for stage in found])
    most = min(most, 1.02 * max(stage.rate for stage in found))
    groups = list(dict.fromkeys(stage.group for stage in found))
    drawing = picture(
        WIDTH, _ROW * len(found) + 30 * len(groups), "Rate of each stage alone and of training"
    )
    x, y = Scale(0.0, most, _START, _END), 0.0
    for group in groups:
        text(drawing, (0, y + 20), group, "small strong")
        y += 30
        for stage in (one for one in found if one.group == group):
            text(drawing, (_LABEL, y + 13), stage.name, "end small")
            box(drawing, (_START, y), (x.at(stage.rate) - _START, _BAR), f"bar {stage.kind}")
            beyond = " →" if stage.rate > most else ""
            place = (x.at(stage.rate) + 8, y + 13)
            text(drawing, place, f"{stage.rate:,.0f}{beyond}", "small")
            y += _ROW
    return markup(drawing)


def confirmed(data: ReportData) -> Markup | None:
    """Draw the confirmed ratio with its interval, and each round that the study recorded."""
    if data.best is None or data.best.keeps_baseline:
        return None
    speedup = data.best.evidence.speedup
    low, high = speedup.ci95
    rounds = () if data.answer is None else data.candidate_log(data.answer).ratios or ()
    ends = (low, high, 1.0, *rounds)
    x = Scale(min(ends) * 0.97, max(ends) * 1.03, 8, WIDTH - 8)
    label = f"{speedup.ratio:.2f} times your settings, 95 % interval {low:.2f} to {high:.2f}"
    drawing = picture(WIDTH, 74, label)
    line(drawing, (8, 30), (WIDTH - 8, 30), "axis")
    box(drawing, (x.at(low), 22), (x.at(high) - x.at(low), 16), "bar answer faint")
    for ratio in rounds:
        line(drawing, (x.at(ratio), 22), (x.at(ratio), 38), "round")
    mark(drawing, (x.at(1.0), 30), "baseline")
    mark(drawing, (x.at(speedup.ratio), 30), "answer")
    text(drawing, (x.at(1.0), 60), "1x: your settings", "small muted" + _side(x, 1.0))
    words = f"{low:.2f} to {high:.2f}" + (", a line for each round" if rounds else "")
    middle = (low + high) / 2
    text(drawing, (x.at(middle), 60), words, "small" + _side(x, middle))
    return markup(drawing)


def blocks(data: ReportData) -> Markup | None:
    """Draw the rate in each timed block of the search, of the user's settings and of the answer."""
    own = readable_note(lambda: data.archive.notes.baseline_runs) or ()
    found = {"your settings": ("baseline", [block for run in own for block in run.blocks])}
    timed = data.answer.details.measurement if data.answer is not None else None
    if timed is not None and data.answer is not data.baseline:
        found["the answer"] = ("answer", list(timed.blocks))
    rates = [1 / b.seconds_per_sample for _, timings in found.values() for b in timings]
    if not rates:
        return None
    x = Scale(0.97 * min(rates), 1.03 * max(rates), _LABEL, WIDTH - 8)
    drawing = picture(WIDTH, 46.0 * len(found) + 40, "Rate in each timed block")
    for row, (name, (kind, timings)) in enumerate(found.items()):
        y = 46.0 * row + 24
        text(drawing, (_LABEL - 12, y + 4), f"{name}, {len(timings)} blocks", "end small")
        line(drawing, (x.start, y), (x.end, y), "grid")
        for block in timings:
            at = x.at(1 / block.seconds_per_sample)
            kinds = f"block {kind} disturbed" if block.is_disturbed else f"block {kind}"
            box(drawing, (at - 0.75, y - 12), (1.5, 24), kinds)
    foot = 46.0 * len(found) + 8
    for rate in x.ticks(6):
        line(drawing, (x.at(rate), foot - 6), (x.at(rate), foot), "axis")
        text(drawing, (x.at(rate), foot + 16), f"{rate:,.0f}", "middle small")
    return markup(drawing)


def time_spent(phases: Sequence[Phase]) -> Markup | None:
    """Draw one bar of all phases, in the order and shades of the table below it."""
    total = sum(phase.seconds for phase in phases)
    if not total:
        return None
    drawing, x = picture(WIDTH, 30, f"{span(total)} in {len(phases)} phases"), 0.0
    for phase in phases:
        width = WIDTH * phase.seconds / total
        tip = f"{phase.name}: {span(phase.seconds)}"
        box(drawing, (x, 0), (max(width - 2, 0.5), 30), f"bar {shade(phase)}", tip)
        x += width
    return markup(drawing)


def shade(phase: Phase) -> str:
    """Return the CSS class that colours a phase, in the bar and beside its name."""
    return f"shade{_SHADES[phase.name]}"


def _own_rate(data: ReportData) -> float:
    """Return the baseline's samples/s: from the confirmation if there is one, else its trial's."""
    if data.best is not None:
        return data.best.evidence.baseline.samples_per_second
    measured = data.baseline.details.samples_per_second if data.baseline else None
    return measured or 0.0


def _measured_in(data: ReportData) -> str:
    """Return the measurement that the rates of training are of, in words."""
    return "in the search" if data.best is None else data.best.measured_in


def _side(x: Scale, value: float) -> str:
    """Return the CSS class that aligns words so that they do not leave the drawing."""
    share = (x.at(value) - x.start) / (x.end - x.start)
    near = 0.15
    return "" if share < near else " end" if share > 1 - near else " middle"
