"""Diagrams in which each trial is a mark: over time, against memory, against accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from markupsafe import Markup

from autotune.report.chart_parts import MOST_REASON, WIDTH, Rate, tip_of
from autotune.report.data import ReportData
from autotune.report.svg import Axes, Scale, box, line, mark, markup, path, picture, text
from autotune.study.study import FinishedTrial
from autotune.values.text import size

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 736.0, 36.0, 288.0
_HEIGHT = 336.0
_LANE = 26.0
# Most trials that are drawn with their intervals.
_MOST_WHISKERS = 120
# A limit above this many times the highest peak is named at the edge, to leave the marks room.
_FAR = 1.5
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

Point = tuple[FinishedTrial, float, float]


def history(data: ReportData) -> Markup | None:
    """Draw every trial in the order of the search, with the incumbent's rate as steps."""
    if not data.trials:
        return None
    rate, last = Rate(data), max(*_numbers(data), 1)
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
        mark(drawing, place, data.standing(trial), tip_of(data, trial))
    for one in data.archive.open:
        tip = f"trial {one.number}: {one.state}. {one.reason[:MOST_REASON]}"
        mark(drawing, (axes.x.at(one.number), _BOTTOM - foot / 2), "open", tip)
    if foot:
        text(drawing, (_LEFT - 8, _BOTTOM - foot / 2 + 4), "none", "end small muted")
    return markup(drawing)


def against_memory(data: ReportData) -> Markup | None:
    """Draw rate against peak memory, with the limit."""
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


def _accuracy_percent(trial: FinishedTrial) -> float | None:
    """Return the accuracy margin in percent; None if unknown, which is stored as 0."""
    margin = trial.verdict.margins.get("accuracy", 0.0)
    return None if trial.details.quality is None and not margin else 100 * margin


def _numbers(data: ReportData) -> list[int]:
    return [trial.number for trial in data.trials] + [one.number for one in data.archive.open]


def _points(data: ReportData, of: Callable[[FinishedTrial], float | None]) -> list[Point]:
    """Return the trials that have both coordinates."""
    rate = Rate(data)
    found = ((trial, of(trial), rate.of(trial)) for trial in data.trials)
    return [(trial, x, y) for trial, x, y in found if x is not None and y is not None]


def _scatter(
    data: ReportData, points: Sequence[Point], x: Scale, name: str
) -> tuple[Element, Axes]:
    rate = Rate(data)
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


def _marks(drawing: Element, data: ReportData, points: Sequence[Point], axes: Axes) -> None:
    for trial, x, y in points:
        place = (axes.x.at(x), axes.y.at(y))
        mark(drawing, place, data.standing(trial), tip_of(data, trial))


def _whiskers(drawing: Element, data: ReportData, axes: Axes) -> None:
    """Draw the 95 % interval of each trial."""
    for trial in data.trials:
        bounds = data.ratio_interval(trial)
        if bounds is not None:
            x = axes.x.at(trial.number)
            line(drawing, (x, axes.y.at(bounds[0])), (x, axes.y.at(bounds[1])), "whisker")


def _incumbents(drawing: Element, data: ReportData, axes: Axes) -> None:
    """Draw the best rate so far as steps, over feasible trials that confirmation did not refuse."""
    rate, best = Rate(data), 0.0
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
