"""Scales put values where they belong, and nothing that is drawn is taken for markup."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from autotune.report.svg import Axes, Scale, mark, markup, picture, round_values, text


def test_a_scale_puts_its_ends_and_its_middle_where_they_belong() -> None:
    scale = Scale(0.0, 10.0, 300.0, 100.0)
    assert [scale.at(value) for value in (0.0, 5.0, 10.0)] == [300.0, 200.0, 100.0]


def test_a_logarithmic_scale_has_equal_factors_at_equal_distances() -> None:
    scale = Scale(0.25, 4.0, 0.0, 400.0, logarithmic=True)
    assert [scale.at(value) for value in (0.25, 0.5, 1.0, 2.0)] == [0.0, 100.0, 200.0, 300.0]


def test_a_point_outside_stays_at_the_edge() -> None:
    scale = Scale(0.0, 1.0, 0.0, 50.0)
    assert (scale.at(-7.0), scale.at(7.0)) == (0.0, 50.0)


def test_a_scale_of_one_value_has_it_in_the_middle() -> None:
    assert Scale(3.0, 3.0, 0.0, 100.0).at(3.0) == 50.0
    assert Scale(3.0, 3.0, 0.0, 100.0).ticks() == [3.0]


@pytest.mark.parametrize(
    ("low", "high", "values"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 2.1, [0.0, 0.5, 1.0, 1.5, 2.0]),
        (0.0, 100.0, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]),
        (-3.0, 4.0, [-2.0, 0.0, 2.0, 4.0]),
        (0.91, 1.13, [0.95, 1.0, 1.05, 1.1]),
        (0.0, 3e-5, [0.0, 1e-5, 2e-5, 3e-5]),
    ],
)
def test_ticks_are_round_and_few(low: float, high: float, values: list[float]) -> None:
    assert round_values(low, high) == pytest.approx(values)


def test_ticks_of_a_logarithmic_scale_are_powers_of_ten_times_one_two_and_five() -> None:
    assert Scale(0.2, 5.0, 0, 1, logarithmic=True).ticks() == [0.2, 0.5, 1.0, 2.0, 5.0]


def test_text_in_a_drawing_is_never_markup() -> None:
    drawing = picture(10, 10, 'a "label" <b>')
    text(drawing, (1, 2), "<script>alert(1)</script> & more")
    mark(drawing, (1, 2), "failed", '"><script>')
    written = str(markup(drawing))
    assert "<script" not in written
    read = fromstring(written)
    assert read.get("aria-label") == 'a "label" <b>'
    assert read.findtext("text") == "<script>alert(1)</script> & more"
    assert read.findtext("path/title") == '"><script>'


def test_each_kind_of_mark_has_a_shape_of_its_own() -> None:
    kinds = ("baseline", "answer", "feasible", "refused", "memory", "accuracy", "failed", "open")
    drawing = picture(10, 10, "")
    for kind in kinds:
        mark(drawing, (5, 5), kind)
    shapes = {(shape.tag, shape.get("d")) for shape in drawing}
    assert len(shapes) == len(kinds)
    assert [shape.get("class") for shape in drawing] == [f"mark {kind}" for kind in kinds]


def test_a_scale_of_whole_numbers_marks_no_others() -> None:
    assert Scale(-0.02, 1.02, 0, 1, whole=True).ticks() == [0.0, 1.0]


def test_axes_name_their_ticks() -> None:
    drawing = picture(100, 100, "")
    axes = Axes(Scale(0, 4, 10, 90), Scale(0, 2, 80, 10))
    axes.draw(drawing, ("trial", "rate"), (lambda v: f"n{v:g}", lambda v: f"{v:g}x"))
    words = [each.text for each in drawing.iter("text")]
    assert {"trial", "rate", "n0", "n4", "0x", "2x"} <= set(words)
