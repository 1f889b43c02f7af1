"""Diagrams in which each trial is a mark: over time, against memory, against accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from markupsafe import Markup

from autotune.configuration.training_config import render
from autotune.report.data import ReportData
from autotune.report.svg import WIDTH, Axes, Scale, box, line, mark, markup, path, picture, text
from autotune.study.finished import FinishedTrial
from autotune.values.text import size

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 736.0, 36.0, 288.0
_HEIGHT = 336.0
_LANE = 26.0
# Most trials that are drawn with their intervals.
_MOST_WHISKERS = 120
# A limit above this many times the highest peak is named at the edge, to leave the marks room.
_FAR = 1.5
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

_LABELS = {
    "baseline": "your settings",
    "answer": "the answer",
    "feasible": "feasible",
    "refused": "not confirmed",
    "memory": "infeasible: memory",
    "accuracy": "infeasible: accuracy",
    "failed": "infeasible: did not run",
    "open": "lost or running",
}
# Most characters of a reason in a tooltip.
_MOST_REASON = 120

Point = tuple[FinishedTrial, float, float]


@dataclass(frozen=True)
class _Rate:
    """Vertical coordinate of a trial: its ratio to the baseline, or its value without one."""

    data: ReportData

    @property
    def relative(self) -> bool:
        """Return True if there is a baseline to compare with."""
        return bool(self.data.baseline and self.data.baseline.verdict.value)

    @property
    def name(self) -> str:
        """Return the name of the axis."""
        return "times the rate of your settings" if self.relative else self.data.rate_unit

    def of(self, trial: FinishedTrial) -> float | None:
        """Return the coordinate of a trial; None if it has no value."""
        return self.data.ratio(trial) if self.relative else trial.verdict.value

    def spelled(self, value: float) -> str:
        """Return the label of a tick."""
        return f"{value:g}x" if self.relative else f"{value:g}"

    def scale(self, start: float, end: float) -> Scale:
        """Return the scale from 0 to a little above the fastest trial."""
        found = [self.of(trial) for trial in self.data.trials]
        highest = max((value for value in found if value is not None), default=1.0)
        return Scale(0.0, 1.08 * max(highest, 1.0 if self.relative else 0.0), start, end)


def history(data: ReportData) -> Markup | None:
    """Draw every trial in the order of the search, with the incumbent's rate as steps."""
    if not data.trials:
        return None
    rate, last = _Rate(data), max(*_numbers(data), 1)
    pad = 0.02 * last
    silent = [trial for trial in data.trials if rate.of(trial) is None]
    foot = _LANE if silent or data.archive.open else 0.0
    axes = Axes(
        Scale(-pad, last + pad, _LEFT, _RIGHT, whole=True), rate.scale(_BOTTOM - foot, _TOP), foot
    )
    drawing = picture(WIDTH, _HEIGHT, f"Rate of {len(data.trials)} trials in the order they ran")
    axes.draw(drawing, ("trial", rate.name), (lambda v: f"{v:.0f}", rate.spelled))
    if len(data.trials) <= _MOST_WHISKERS:
        _whiskers(drawing, data, axes)
    _incumbents(drawing, data, axes)
    for trial in data.trials:
        value = rate.of(trial)
        height = _BOTTOM - foot / 2 if value is None else axes.y.at(value)
        place = (axes.x.at(trial.number), height)
        mark(drawing, place, data.standing(trial), _tip(data, trial))
    for one in data.archive.open:
        tip = f"trial {one.number}: {one.state}. {one.reason[:_MOST_REASON]}"
        mark(drawing, (axes.x.at(one.number), _BOTTOM - foot / 2), "open", tip)
    if foot:
        text(drawing, (_LEFT - 8, _BOTTOM - foot / 2 + 4), "none", "end small muted")
    return markup(drawing)


def against_memory(data: ReportData) -> Markup | None:
    """Draw rate against peak memory, with the limit and the Pareto-best trials as steps."""
    limit = data.memory_limit_bytes
    points = _points(data, lambda trial: trial.details.peak_memory_bytes)
    if not points:
        return None
    peaks = [point[1] for point in points]
    near = limit is not None and limit <= _FAR * max(peaks)
    low, high = min(peaks), max(*peaks, limit if near and limit is not None else 0)
    reach = max(high - low, 0.05 * high)
    unit, name = next((u for u in _UNITS if high >= 2 * u[0]), _UNITS[-1])
    ends = (max(low - 0.1 * reach, 0.0) / unit, (high + 0.1 * reach) / unit)
    x = Scale(*ends, _LEFT, _RIGHT)
    scaled = [(trial, at / unit, height) for trial, at, height in points]
    drawing, axes = _scatter(data, scaled, x, f"peak memory, {name}")
    if limit is not None:
        words = f"limit {size(limit)}"
        _limit(drawing, axes, limit / unit if near else None, words if near else f"{words} →")
    _front(drawing, data, scaled, axes)
    _marks(drawing, data, scaled, axes)
    return markup(drawing)


def against_accuracy(data: ReportData) -> Markup | None:
    """Draw rate against the accuracy margin, for the trials whose margin is known."""
    points = _points(data, _accuracy_percent)
    if not points:
        return None
    margins = [point[1] for point in points]
    low, high = min(margins), max(*margins, 0.0)
    reach = max(high - low, 0.1)
    x = Scale(low - 0.08 * reach, high + 0.16 * reach, _LEFT, _RIGHT)
    drawing, axes = _scatter(data, points, x, "accuracy beyond its limit, % of your quality")
    _limit(drawing, axes, 0.0, "limit")
    _marks(drawing, data, points, axes)
    return markup(drawing)


def legend(data: ReportData) -> Markup:
    """Return a list of the kinds of marks in this study's diagrams, with their names."""
    kinds = dict.fromkeys(data.standing(trial) for trial in data.trials)
    found = [kind for kind in _LABELS if kind in kinds or (kind == "open" and data.archive.open)]
    entries = []
    for kind in found:
        swatch = picture(20, 18, "")
        swatch.attrib = {"viewBox": "0 0 20 18", "aria-hidden": "true", "class": "swatch"}
        mark(swatch, (10, 9), kind)
        entries.append(Markup("<li>{}{}</li>").format(markup(swatch), _LABELS[kind]))
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(entries))


def _accuracy_percent(trial: FinishedTrial) -> float | None:
    """Return the accuracy margin in percent; None if unknown, which is stored as 0."""
    margin = trial.verdict.margins.get("accuracy", 0.0)
    return None if trial.details.quality is None and not margin else 100 * margin


def _numbers(data: ReportData) -> list[int]:
    return [trial.number for trial in data.trials] + [one.number for one in data.archive.open]


def _points(data: ReportData, of: Callable[[FinishedTrial], float | None]) -> list[Point]:
    """Return the trials that have both coordinates."""
    rate = _Rate(data)
    found = ((trial, of(trial), rate.of(trial)) for trial in data.trials)
    return [(trial, x, y) for trial, x, y in found if x is not None and y is not None]


def _scatter(
    data: ReportData, points: Sequence[Point], x: Scale, name: str
) -> tuple[Element, Axes]:
    rate = _Rate(data)
    axes = Axes(x, rate.scale(_BOTTOM, _TOP))
    drawing = picture(WIDTH, _HEIGHT, f"Rate of {len(points)} trials against {name}")
    axes.draw(drawing, (name, rate.name), (lambda v: f"{v:g}", rate.spelled))
    return drawing, axes


def _limit(drawing: Element, axes: Axes, at: float | None, words: str) -> None:
    """Draw the limit of the feasible range; at the edge if `at` is None."""
    x = axes.x.end if at is None else axes.x.at(at)
    top, bottom = axes.y.end, axes.y.start
    if at is not None:
        box(drawing, (x, top), (axes.x.end - x, bottom - top), "forbidden")
    line(drawing, (x, top), (x, bottom), "limit")
    # Words stand left of a line in the right half, where they would be cut off otherwise.
    place = "end" if x > (axes.x.start + axes.x.end) / 2 else ""
    text(drawing, (x - 6 if place else x + 6, top + 12), words, f"{place} small limit-text")


def _front(drawing: Element, data: ReportData, points: Sequence[Point], axes: Axes) -> None:
    """Draw the highest rate within each memory as steps through the Pareto-best trials."""
    places = {trial.number: (axes.x.at(x), axes.y.at(y)) for trial, x, y in points}
    steps: list[tuple[float, float]] = []
    for trial in data.pareto_best:
        x, y = places[trial.number]
        steps += [(x, steps[-1][1]), (x, y)] if steps else [(x, y)]
    if steps:
        path(drawing, steps, "front")


def _marks(drawing: Element, data: ReportData, points: Sequence[Point], axes: Axes) -> None:
    for trial, x, y in points:
        place = (axes.x.at(x), axes.y.at(y))
        mark(drawing, place, data.standing(trial), _tip(data, trial))


def _whiskers(drawing: Element, data: ReportData, axes: Axes) -> None:
    """Draw the 95 % interval of each trial."""
    for trial in data.trials:
        bounds = data.ratio_interval(trial)
        if bounds is not None:
            x = axes.x.at(trial.number)
            line(drawing, (x, axes.y.at(bounds[0])), (x, axes.y.at(bounds[1])), "whisker")


def _incumbents(drawing: Element, data: ReportData, axes: Axes) -> None:
    """Draw the best rate so far as steps, over feasible trials that confirmation did not refuse."""
    rate, best = _Rate(data), 0.0
    points: list[tuple[float, float]] = []
    for trial in data.trials:
        value = rate.of(trial)
        holds = data.standing(trial) in ("baseline", "answer", "feasible")
        if value is None or not holds or value <= best:
            continue
        x = axes.x.at(trial.number)
        points += [(x, axes.y.at(best))] if points else []
        points.append((x, axes.y.at(value)))
        best = value
    if points:
        path(drawing, [*points, (axes.x.end, axes.y.at(best))], "incumbent")


def _tip(data: ReportData, trial: FinishedTrial) -> str:
    """Return the tooltip of a trial's mark."""
    ratio, rate = data.ratio(trial), trial.details.samples_per_second
    memory = trial.details.peak_memory_bytes
    facts = [
        "" if ratio is None else f"{ratio:.2f}x",
        "" if rate is None else f"{rate:.1f} {data.rate_unit} in the search",
        "" if memory is None else size(memory),
        render(data.differences(trial.config)) or "your settings",
        trial.verdict.reason[:_MOST_REASON],
    ]
    return f"trial {trial.number}: " + "; ".join(filter(None, facts))
