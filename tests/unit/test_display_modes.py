"""A terminal is drawn on, and plain lines are written where that cannot be."""

from __future__ import annotations

import re
import sys

import pytest

from autotune.console.live import Mode, display
from autotune.searching.run.events import Event
from covering import covers
from drawn_search import ESCAPE, HIDE_CURSOR, SHOW_CURSOR, whole_search
from terminals import Terminal, written_to

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    return whole_search(tmp_path_factory.mktemp("live"))


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that says nothing of colours or CI, to be changed."""
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


def shown_on(terminal: Terminal, events: list[Event], mode: Mode) -> str:
    """Return what reaches a terminal that is in the place of stderr."""
    with written_to(terminal) as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        before = terminal.settings
        with display(mode) as show:
            for event in events:
                show(event)
        assert terminal.settings == before
    return terminal.seen()


@pytest.mark.parametrize("mode", ["auto", "rich"])
@pytest.mark.usefixtures("plain_environment")
def test_a_terminal_is_drawn_on_and_left_as_it_was(
    events: list[Event], mode: Mode, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown_on(Terminal(), events, mode)
    assert COLOUR.search(text)
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)
    assert capsys.readouterr().out == ""


@covers("P5")
@pytest.mark.parametrize(
    ("name", "value", "mode"),
    [
        ("TERM", "dumb", "auto"),
        ("TERM", "dumb", "rich"),
        ("NO_COLOR", "1", "auto"),
        ("NO_COLOR", "1", "rich"),
        ("CI", "1", "auto"),
    ],
)
def test_a_terminal_that_cannot_be_drawn_on_gets_lines_without_control_characters(
    plain_environment: pytest.MonkeyPatch, events: list[Event], name: str, value: str, mode: Mode
) -> None:
    plain_environment.setenv(name, value)
    text = shown_on(Terminal(), events, mode)
    assert ESCAPE not in text
    assert "best so far: trial" in text


@covers("P5")
@pytest.mark.parametrize("mode", ["auto", "rich", "plain"])
def test_a_pipe_gets_lines(
    events: list[Event],
    mode: Mode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with display(mode) as show:
        for event in events:
            show(event)
    said = capsys.readouterr()
    assert ESCAPE not in said.err
    assert "best so far: trial" in said.err
    assert said.out == ""


def test_none_says_nothing(capsys: pytest.CaptureFixture[str], events: list[Event]) -> None:
    with display("none") as show:
        for event in events:
            show(event)
    assert capsys.readouterr() == ("", "")


@covers("P5")
@pytest.mark.parametrize("mode", ["auto", "rich"])
@pytest.mark.usefixtures("plain_environment")
def test_a_terminal_too_narrow_for_a_table_gets_lines(events: list[Event], mode: Mode) -> None:
    text = shown_on(Terminal(columns=59), events, mode)
    assert ESCAPE not in text
    assert "best so far: trial" in text
    assert ESCAPE in shown_on(Terminal(columns=60), events, mode)
