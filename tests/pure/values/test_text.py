"""Numbers and foreign text as people read them."""

import pytest

from autotune.values.text import clean, size, span, without_passwords
from covering import covers


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (912 << 20, "912 MiB"), (3 << 40, "3 TiB")],
)
def test_bytes_are_written_with_three_digits_and_a_unit(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((59.4, "59 s"), (59.6, "1 min 0 s"), (61, "1 min 1 s"), (179.7, "3 min 0 s")),
        *((7199.9, "2 h 0 min"), (7260, "2 h 1 min")),
    ],
)
def test_a_span_is_written_in_the_unit_that_suits_it(seconds, text):
    assert span(seconds) == text


def test_terminal_escapes_and_control_characters_are_left_out():
    assert clean("\x1b[31mred\x1b[0m \x07bell\r\x1b[2J") == "red bell"


@covers("X9")
@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x1bP1$r\x1b\\text", "text"),
        ("\x1b]0;never ended\nnext line", "\nnext line"),
        ("\x9b31mtext", "text"),
        ("a\x1b[38;5;1mb\x1b[?25lc", "abc"),
    ],
)
def test_control_sequences_of_terminals_are_left_out_whole(text, cleaned):
    assert clean(text) == cleaned


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at postgresql://me:secret@db/x!", "at postgresql://me:***@db/x!"),
        ("postgresql+psycopg://:secret@db", "postgresql+psycopg://:***@db"),
        ("sqlite://x?password=secret&a=1", "sqlite://x?password=***&a=1"),
        ("sqlite:///study.db", "sqlite:///study.db"),
        ("http://localhost:8080/", "http://localhost:8080/"),
        ("me@example.org: hello", "me@example.org: hello"),
    ],
)
def test_passwords_are_shown_as_stars_and_nothing_else_is(text, shown):
    assert without_passwords(text) == shown
