"""Draw scales, marks and axes as SVG elements, whatever the diagram shows.

Elements are the standard library's ElementTree, which escapes every text and attribute. Colours are
CSS classes, which the page's style sheet defines for light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

WIDTH = 760.0
"""Width of a diagram in pixels."""
_STEPS = (1.0, 2.0, 5.0)
_TICK = 5.0
_SIZE = 5.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Map from values to pixels; either end may be the larger pixel."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False
    whole: bool = False
    """True: ticks at whole numbers only."""

    def at(self, value: float) -> float:
        """Return the pixel of a value; values outside are moved to the edge."""
        low, high, inside = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, inside = math.log(low), math.log(high), math.log(inside)
        share = 0.5 if high == low else (inside - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round values within the scale, `most` at most."""
        if not self.logarithmic:
            values = round_values(self.low, self.high, most)
            return [value for value in values if not self.whole or value == int(value)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found = [step * 10.0**decade for decade in decades for step in _STEPS]
        inside = [value for value in found if self.low <= value <= self.high]
        few = 3
        return inside if few <= len(inside) <= most else round_values(self.low, self.high, most)


def round_values(low: float, high: float, most: int = 6) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten from `low` to `high`, `most` at most."""
    if high <= low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = (step * power * factor for factor in (1, 10, 100) for step in _STEPS)
    step = next(s for s in steps if math.floor(high / s) - math.ceil(low / s) + 1 <= most)
    first = math.ceil(low / step - 1e-9)
    inside = takewhile(lambda n: n * step <= high + 1e-9 * step, count(first))
    return [round(n * step, 12) for n in inside]


def picture(width: float, height: float, label: str) -> Element:
    """Return an empty drawing with an accessible name."""
    box = f"0 0 {number(width)} {number(height)}"
    return Element("svg", {"viewBox": box, "role": "img", "aria-label": label})


def line(parent: Element, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
    """Add a straight line; `kind` is its CSS class, as for the functions below."""
    (x1, y1), (x2, y2) = start, end
    places = {"x1": number(x1), "y1": number(y1), "x2": number(x2), "y2": number(y2)}
    SubElement(parent, "line", {**places, "class": kind})


def path(parent: Element, points: Sequence[tuple[float, float]], kind: str) -> None:
    """Add a line through points."""
    drawn = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    SubElement(parent, "polyline", {"points": drawn, "class": kind})


def text(parent: Element, place: tuple[float, float], words: str, kind: str = "") -> None:
    """Add words at a place; the CSS class aligns them."""
    at = {"x": number(place[0]), "y": number(place[1])}
    SubElement(parent, "text", {**at, "class": kind} if kind else at).text = words


def box(
    parent: Element,
    corner: tuple[float, float],
    extent: tuple[float, float],
    kind: str,
    tip: str = "",
) -> Element:
    """Add a rectangle from its upper left corner, with a tooltip."""
    places = {
        "x": number(corner[0]),
        "y": number(corner[1]),
        "width": number(max(extent[0], 0.0)),
        "height": number(max(extent[1], 0.0)),
    }
    drawn = SubElement(parent, "rect", {**places, "class": kind})
    _tip(drawn, tip)
    return drawn


def mark(parent: Element, place: tuple[float, float], kind: str, tip: str = "") -> None:
    """Add the mark of a trial, whose shape and colour both show the kind."""
    x, y = place
    if kind in _SHAPES:
        drawn = SubElement(parent, "path", {"d": _SHAPES[kind](x, y), "class": f"mark {kind}"})
    else:
        at = {"cx": number(x), "cy": number(y), "r": number(_SIZE - 0.8)}
        drawn = SubElement(parent, "circle", {**at, "class": f"mark {kind}"})
    _tip(drawn, tip)


def markup(drawing: Element) -> Markup:
    """Return the drawing as markup for a page."""
    return Markup(tostring(drawing, encoding="unicode"))  # noqa: S704 (ElementTree has escaped it)


def number(value: float) -> str:
    """Return a coordinate as text, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def _tip(drawn: Element, tip: str) -> None:
    if tip:
        SubElement(drawn, "title").text = tip


def _polygon(*corners: tuple[float, float]) -> Callable[[float, float], str]:
    def drawn(x: float, y: float) -> str:
        places = (f"{number(x + dx)} {number(y + dy)}" for dx, dy in corners)
        return f"M{'L'.join(places)}Z"

    return drawn


def _cross(x: float, y: float) -> str:
    s = _SIZE - 1
    ends = [number(value) for value in (x - s, y - s, x + s, y + s)]
    left, top, right, bottom = ends
    return f"M{left} {top}L{right} {bottom}M{left} {bottom}L{right} {top}"


_SHAPES: dict[str, Callable[[float, float], str]] = {
    "baseline": _polygon((-_SIZE, -_SIZE), (_SIZE, -_SIZE), (_SIZE, _SIZE), (-_SIZE, _SIZE)),
    "answer": _polygon((0, -1.6 * _SIZE), (1.6 * _SIZE, 0), (0, 1.6 * _SIZE), (-1.6 * _SIZE, 0)),
    "memory": _polygon((0, -_SIZE), (_SIZE, 0.8 * _SIZE), (-_SIZE, 0.8 * _SIZE)),
    "accuracy": _polygon((0, _SIZE), (_SIZE, -0.8 * _SIZE), (-_SIZE, -0.8 * _SIZE)),
    "failed": _cross,
    "refused": lambda x, y: f"M{number(x - 4)} {number(y)}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
    "open": lambda x, y: f"M{number(x - 4)} {number(y)}h8M{number(x)} {number(y - 4)}v8",
}


@dataclass(frozen=True)
class Axes:
    """A plotting area with both scales."""

    x: Scale
    y: Scale
    foot: float = 0.0
    """Pixels between the lowest value and the horizontal axis: a lane for trials without value."""

    def draw(
        self,
        parent: Element,
        names: tuple[str, str],
        spelled: tuple[Callable[[float], str], Callable[[float], str]],
    ) -> None:
        """Draw grid, ticks and names of the horizontal and the vertical axis."""
        bottom, left = self.y.start + self.foot, self.x.start
        for value in self.x.ticks(8):
            at = self.x.at(value)
            line(parent, (at, bottom), (at, bottom + _TICK), "axis")
            text(parent, (at, bottom + 18), spelled[0](value), "middle small")
        for value in self.y.ticks(6):
            at = self.y.at(value)
            line(parent, (left, at), (self.x.end, at), "grid")
            text(parent, (left - 8, at + 4), spelled[1](value), "end small")
        line(parent, (left, bottom), (self.x.end, bottom), "axis")
        text(parent, ((left + self.x.end) / 2, bottom + 36), names[0], "middle small muted")
        text(parent, (left - 44, self.y.end - 10), names[1], "small muted")
