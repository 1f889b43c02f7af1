"""Numbers and foreign text as people read them."""

from __future__ import annotations

import pytest

from autotune.text import clean, size, span


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (912 << 20, "912 MiB"), (3 << 40, "3 TiB")],
)
def test_bytes_are_written_with_three_digits_and_a_unit(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.4, "59 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")]
)
def test_a_span_is_written_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_terminal_escapes_and_control_characters_are_left_out() -> None:
    assert clean("\x1b[31mred\x1b[0m \x07bell\r\x1b[2J") == "red bell"


def test_lines_tabs_and_letters_of_any_script_stay() -> None:
    assert clean("ä\n\tλ") == "ä\n\tλ"
