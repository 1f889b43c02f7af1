"""Diagrams in which each trial is a mark: over time, against memory, against accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from markupsafe import Markup

from autotune.report.data import ReportData
from autotune.report.marks import MOST_REASON, WIDTH, Rate, tip_of
from autotune.report.svg import Axes, Scale, box, line, mark, markup, path, picture, text
from autotune.text import size
from autotune.tuning.storing.study import FinishedTrial

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 736.0, 36.0, 288.0
_HEIGHT = 336.0
_LANE = 26.0
# More whiskers than these are a haze.
_MOST_WHISKERS = 120
# A limit further away than this would leave the marks no room.
_FAR = 1.5
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

Point = tuple[FinishedTrial, float, float]


def history(data: ReportData) -> Markup | None:
    """Every trial in the order of the search, with the best one so far."""
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
    """Rate against peak memory, with the limit."""
    limit = data.memory_limit_bytes
    points = _points(data, lambda trial: trial.details.get("peak_memory_bytes"))
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
    """Rate against the accuracy margin, for the trials of which something is known."""
    points = _points(data, _accuracy_percent)
    if not points:
        return None
    margins = [point[1] for point in points]
    low, high = min(margins), max(*margins, 0.0)
    reach = max(high - low, 0.1)
    x = Scale(low - 0.08 * reach, high + 0.16 * reach, _LEFT, _RIGHT)
    drawing, axes = _scatter(data, points, x, "worse than allowed by, % of your quality")
    _limit(drawing, axes, 0.0, "limit")
    _marks(drawing, data, points, axes)
    return markup(drawing)


def _accuracy_percent(trial: FinishedTrial) -> float | None:
    """The margin; None where it is not known, which is stored as 0."""
    margin = trial.verdict.margins.get("accuracy", 0.0)
    return None if trial.details.get("quality") is None and not margin else 100 * margin


def _numbers(data: ReportData) -> list[int]:
    return [trial.number for trial in data.trials] + [one.number for one in data.archive.open]


def _points(data: ReportData, of: Callable[[FinishedTrial], float | None]) -> list[Point]:
    """The trials that have both coordinates."""
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
    """Where feasible ends; at the edge where the limit lies beyond it."""
    x = axes.x.end if at is None else axes.x.at(at)
    top, bottom = axes.y.end, axes.y.start
    if at is not None:
        box(drawing, (x, top), (axes.x.end - x, bottom - top), "forbidden")
    line(drawing, (x, top), (x, bottom), "limit")
    # Left of the line where it would be cut off on the right.
    place = "end" if x > (axes.x.start + axes.x.end) / 2 else ""
    text(drawing, (x - 6 if place else x + 6, top + 12), words, f"{place} small limit-text")


def _marks(drawing: Element, data: ReportData, points: Sequence[Point], axes: Axes) -> None:
    for trial, x, y in points:
        place = (axes.x.at(x), axes.y.at(y))
        mark(drawing, place, data.standing(trial), tip_of(data, trial))


def _whiskers(drawing: Element, data: ReportData, axes: Axes) -> None:
    """The 95 % interval of each trial."""
    for trial in data.trials:
        bounds = data.ratio_interval(trial)
        if bounds is not None:
            x = axes.x.at(trial.number)
            line(drawing, (x, axes.y.at(bounds[0])), (x, axes.y.at(bounds[1])), "whisker")


def _incumbents(drawing: Element, data: ReportData, axes: Axes) -> None:
    """The best rate so far of those that are feasible and were not refused later, as steps."""
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
