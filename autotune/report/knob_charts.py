"""Diagrams of settings: the effect of each value, and the interaction of two knobs."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from markupsafe import Markup

from autotune.knobs.base import spelled
from autotune.report.effects import Cell, Effect, Interaction, KnobEffect
from autotune.report.svg import WIDTH, Scale, box, line, mark, markup, picture, text

_ROW = 22.0
_LABEL, _START, _END, _NUMBERS = 236.0, 252.0, 546.0, 560.0
_TOP = 30.0
# Ratios beyond are drawn at the edge, so that one wide interval does not squeeze the others.
_LEAST, _MOST = 0.2, 5.0
# Least pixels between the labels of two ticks.
_LEAST_GAP = 34.0
_LEFT, _HEAD, _CELL_HEIGHT, _MOST_CELL = 214.0, 56.0, 42.0, 104.0
_EMPTY = Cell(0, None)


def effects(found: Sequence[KnobEffect], chosen: dict[str, object]) -> Markup | None:
    """Draw the effect of each value with its interval; `chosen` marks the result's settings."""
    if not found:
        return None
    rows = sum(1 + sum(1 + len(each.together) for each in one.effects) for one in found)
    gaps = 10.0 * (len(found) - 1)
    height = _TOP + rows * _ROW + gaps + 34
    drawing = picture(WIDTH, height, f"Effect of the values of {len(found)} knobs on the rate")
    x = _ratio_scale(found)
    bottom = height - 34
    _ratio_axis(drawing, x, bottom)
    y = _TOP
    for one in found:
        y = _knob_rows(drawing, one, chosen.get(one.knob), x, y) + 10
    return markup(drawing)


def interaction(found: Interaction, unit: float | None) -> Markup:
    """Draw the best feasible value of each combination, relative to the baseline's (`unit`)."""
    width = min(_MOST_CELL, (WIDTH - _LEFT) / max(len(found.column_values), 1))
    height = _HEAD + _CELL_HEIGHT * len(found.row_values)
    drawing = picture(WIDTH, height, f"Rate by {found.rows} and {found.columns}")
    rates = [cell.best for cell in found.cells.values() if cell.best is not None]
    text(drawing, (_LEFT + 2, 18), found.columns, "small strong")
    text(drawing, (_LEFT - 12, _HEAD - 14), found.rows, "end small strong")
    for across, column in enumerate(found.column_values):
        text(drawing, (_LEFT + (across + 0.5) * width, _HEAD - 14), spelled(column), "middle small")
    for down, row in enumerate(found.row_values):
        top = _HEAD + down * _CELL_HEIGHT
        text(drawing, (_LEFT - 12, top + 26), spelled(row), "end small")
        for across, column in enumerate(found.column_values):
            place = (_LEFT + across * width, top)
            cell = found.cells.get((row, column), _EMPTY)
            _draw_cell(drawing, place, width, _shade(cell, rates), _words(cell, unit))
    return markup(drawing)


def _draw_cell(
    drawing: Element,
    place: tuple[float, float],
    width: float,
    shade: float | None,
    words: tuple[str, str],
) -> None:
    """Draw a cell; `shade` runs from 0, the slowest, to 1, the fastest, which has a border."""
    kind = "cell best" if shade == 1 else "cell"
    corner = (place[0] + 2, place[1] + 2)
    drawn = box(drawing, corner, (width - 4, _CELL_HEIGHT - 4), kind)
    drawn.set("fill-opacity", "0" if shade is None else f"{0.08 + 0.47 * shade:.2f}")
    text(drawing, (place[0] + width / 2, place[1] + 20), words[0], "middle small")
    text(drawing, (place[0] + width / 2, place[1] + 34), words[1], "middle tiny muted")


def _shade(cell: Cell, rates: Sequence[float]) -> float | None:
    if cell.best is None:
        return None
    low, high = min(rates), max(rates)
    return 1.0 if cell.best == high else (cell.best - low) / (high - low)


def _knob_rows(drawing: Element, one: KnobEffect, chosen: object, x: Scale, y: float) -> float:
    """Draw the reference value and the others below it; return the height below them."""
    text(drawing, (0, y + 15), one.knob, "small strong")
    text(drawing, (_LABEL, y + 15), spelled(one.reference), "end small")
    mark(drawing, (x.at(1.0), y + 11), "baseline")
    words = "your value" if one.is_own else "usual value"
    text(drawing, (_NUMBERS, y + 15), words, "small muted")
    for effect in one.effects:
        y += _ROW
        kind = "answer" if effect.value == chosen else "feasible"
        _effect_row(drawing, effect, kind, x, y)
        for name, value in effect.together.items():
            y += _ROW
            text(drawing, (_LABEL, y + 15), f"with {name}={spelled(value)}", "end small muted")
    return y + _ROW


def _effect_row(drawing: Element, effect: Effect, kind: str, x: Scale, y: float) -> None:
    low, high = effect.interval
    text(drawing, (_LABEL, y + 15), spelled(effect.value), "end small")
    line(drawing, (x.at(low), y + 11), (x.at(high), y + 11), f"interval {kind}")
    mark(drawing, (x.at(effect.ratio), y + 11), kind)
    told = f"{effect.ratio:.2f}x  ({low:.2f} to {high:.2f})"
    words = f"{told if effect.is_told_apart else 'not told apart'}, {_trials(effect.trials)}"
    text(drawing, (_NUMBERS, y + 15), words, "small")


def _ratio_scale(found: Sequence[KnobEffect]) -> Scale:
    bounds = [bound for one in found for effect in one.effects for bound in effect.interval]
    low, high = max(min(*bounds, 0.9), _LEAST), min(max(*bounds, 1.1), _MOST)
    return Scale(low, high, _START, _END, logarithmic=True)


def _ratio_axis(drawing: Element, x: Scale, bottom: float) -> None:
    for value in _apart(x):
        line(drawing, (x.at(value), _TOP - 8), (x.at(value), bottom), "grid")
        text(drawing, (x.at(value), bottom + 16), f"{value:g}x", "middle small")
    line(drawing, (x.at(1.0), _TOP - 8), (x.at(1.0), bottom), "axis")
    text(drawing, ((_START + _END) / 2, bottom + 32), "times the rate", "middle small muted")


def _apart(x: Scale) -> list[float]:
    """Return ticks whose labels do not touch: 1, and those far enough from it and each other."""
    shown: list[float] = [1.0]
    for value in x.ticks(7):
        if all(abs(x.at(value) - x.at(other)) >= _LEAST_GAP for other in shown):
            shown.append(value)
    return shown


def _words(cell: Cell, unit: float | None) -> tuple[str, str]:
    """Return the two lines of text in a cell."""
    if not cell.trials:
        return "not tried", ""
    if cell.best is None:
        return "infeasible", _trials(cell.trials)
    rate = f"{cell.best / unit:.2f}x" if unit else f"{cell.best:.4g}/s"
    return rate, _trials(cell.trials)


def _trials(number: int) -> str:
    return f"{number} trial{'' if number == 1 else 's'}"
