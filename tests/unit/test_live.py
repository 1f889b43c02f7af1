"""A search is drawn on a terminal, and told in plain lines where it cannot be."""

from __future__ import annotations

import io
import re
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest
from rich.console import Console

from autotune.console.live import LiveProgress, Mode, display
from autotune.searching.run.events import (
    Event,
    NothingFeasible,
    Phase,
    PhaseStarted,
    Planned,
    RoundEnded,
    RoundVoid,
    StagesTimed,
    StepStarted,
    TrialEnded,
    TrialStarted,
)
from covering import covers
from finished_study import runner
from scripted_runner import changed, events_of, options_in
from terminals import Terminal, written_to

ESCAPE = "\x1b"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
NOON = 1_700_000_000.0


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """A whole search of five batch sizes, one of which runs out of memory."""
    return events_of(options_in(tmp_path_factory.mktemp("live"), storage=None), runner())


def recording(width: int = 120, **kinds: object) -> Console:
    """A terminal of this width that remembers what was printed on it."""
    options = {"file": io.StringIO(), "record": True, "force_terminal": True, **kinds}
    return Console(width=width, height=40, highlight=False, **options)  # type: ignore[arg-type]


def drawn(events: list[Event], console: Console) -> str:
    """Return what stands on the terminal in the end."""
    progress = LiveProgress(console, now=lambda: NOON)
    with progress.drawn():
        for event in events:
            progress.show(event)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def frame(events: list[Event], width: int = 120, **kinds: object) -> str:
    """Return what is drawn when the last of these events arrives."""
    console = recording(width, **kinds)
    progress = LiveProgress(console, now=lambda: NOON)
    for event in events:
        progress.show(event)
    assert progress.board is not None
    plain = Console(width=width, height=40, file=io.StringIO(), **kinds)  # type: ignore[arg-type]
    plain.print(progress.board)
    assert isinstance(plain.file, io.StringIO)
    return plain.file.getvalue()


def until(events: list[Event], kind: type, number: int = 1) -> list[Event]:
    """The events up to the n-th of a kind."""
    places = [place for place, event in enumerate(events) if isinstance(event, kind)]
    return events[: places[number - 1] + 1]


def row(text: str, setting: str) -> str:
    """The line of the trial with this setting."""
    return next(line for line in text.splitlines() if setting in line and "/s" not in line)


def test_a_trial_shows_its_settings_its_rate_its_gain_its_memory_and_its_verdict(
    events: list[Event],
) -> None:
    shown = row(frame(until(events, TrialEnded, 5)), "batch_size=64")
    assert {"164.0", "1.52x", "GiB", "batch_size=64", "ok"} <= set(shown.split())


def test_a_bar_is_as_long_as_the_rate_with_marks_at_the_own_rate_and_at_computing_alone(
    events: list[Event],
) -> None:
    shown = row(frame(until(events, TrialEnded, 5), width=120), "batch_size=64")
    bar = re.search(r"164\.0 {2}(.{28})", shown)
    assert bar is not None
    assert bar[1].index("│") == int(108 / 200 * 28)
    assert bar[1].index("┊") == 27
    assert bar[1].rstrip("┊ ").rindex("━") == int(164 / 200 * 28)


def test_stages_that_were_disturbed_put_no_mark_at_computing_alone(events: list[Event]) -> None:
    doubted = [
        replace(event, diagnosis=replace(event.diagnosis, reached=500.0))
        if isinstance(event, StagesTimed)
        else event
        for event in events
    ]
    assert "your settings in the search 108.0/s" in frame(until(events, TrialEnded, 5))
    assert "computing alone" in frame(until(events, TrialEnded, 5))
    assert "computing alone" not in frame(until(doubted, TrialEnded, 5))


@pytest.mark.parametrize(("width", "cells"), [(79, 0), (80, 8), (88, 16), (120, 28)])
def test_a_terminal_of_eighty_columns_has_bars_too(
    events: list[Event], width: int, cells: int
) -> None:
    shown = row(frame(until(events, TrialEnded, 5), width=width), "batch_size=64")
    filled = int(164 / 200 * cells) + 1 if cells else 0
    assert shown.count("━") == max(0, filled - 1), "less the mark at the own rate"
    assert shown.count("┊") == (1 if cells else 0)


def test_a_configuration_that_cannot_be_used_says_why_without_markup_and_escapes(
    events: list[Event],
) -> None:
    text = drawn(events, recording(width=160))
    assert "no room for [bold]128" in re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\n", "")


def test_a_void_round_stands_among_the_remarks_and_disturbed_ones_in_the_table(
    events: list[Event],
) -> None:
    *before, last = until(events, RoundEnded)
    assert isinstance(last, RoundEnded)
    void = RoundVoid(1, "other programs used 49 % of the cores", 60.0)
    text = frame([*before, void, replace(last, disturbed=1)])
    assert "round 1 void: other programs used 49 % of the cores; repeated" in text
    assert ", 1 disturbed" in text


def test_the_phase_that_is_going_on_is_marked_and_those_before_are_done(
    events: list[Event],
) -> None:
    assert "✓ baseline  ✓ diagnosis  ▸ search" in frame(until(events, TrialEnded, 2))
    assert "✓ search  ▸ confirmation" in frame(until(events, RoundEnded))


def test_the_time_of_day_of_the_answer_stays_true_while_nothing_is_drawn(
    events: list[Event],
) -> None:
    (ended,) = until(events, TrialEnded, 2)[-1:]
    assert isinstance(ended, TrialEnded)
    assert ended.eta_seconds is not None
    text = frame(until(events, TrialEnded, 2))
    answer = re.search(r"gone at (\S+), about .* left: the answer at (\S+)", text)
    assert answer is not None
    seconds = [int(h) * 3600 + int(m) * 60 + int(s) for h, m, s in map(_split, answer.groups())]
    assert (seconds[1] - seconds[0]) % 86_400 == pytest.approx(ended.eta_seconds, abs=1)


@pytest.mark.parametrize("number", [1, 3, 4])
def test_before_the_first_trial_there_is_a_time_of_the_answer_too(
    events: list[Event], number: int
) -> None:
    seen = until(events, StepStarted, number)
    assert isinstance(seen[-1], StepStarted)
    text = frame(seen)
    assert f"baseline: {seen[-1].detail}" in text
    assert re.search(r"about .* left: the answer at \d\d:\d\d:\d\d", text)
    diagnosis = frame(until(events, PhaseStarted, 2))
    assert re.search(r"diagnosis: each stage.*\n.*about .* left: the answer at", diagnosis)


def _split(clock: str) -> list[str]:
    return clock.split(":")


def test_a_round_of_the_confirmation_shows_all_rounds_so_far(events: list[Event]) -> None:
    text = frame(until(events, RoundEnded, 2))
    assert re.search(r"2 +1\.\d{3}x +1\.\d{3} to 1\.\d{3} +batch_size=64", text)


@pytest.mark.parametrize("width", [60, 80, 124])
def test_long_settings_leave_numbers_and_verdict_their_room(
    events: list[Event], width: int
) -> None:
    seen = until(events, TrialEnded, 5)
    ended = seen[-1]
    assert isinstance(ended, TrialEnded)
    changes = {"num_workers": 2, "amp_dtype": "bfloat16", "channels_last": True}
    config = ended.trial.config.replace(**changes, fused_optimizer=True)
    trial = replace(ended.trial, number=777, config=config)
    text = frame([*seen, replace(ended, trial=trial)], width=width)
    (shown,) = [line for line in text.splitlines() if "777" in line]
    assert len(shown) <= width
    assert re.search(r"777 +1\d\d\.\d .*1\.\d\dx .*batch_size=.*…  ok", shown)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(events: list[Event], width: int) -> None:
    text = frame(until(events, RoundEnded), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "batch_size=64" in text
    assert "1.52x" in text


def test_at_the_end_every_trial_and_the_answer_stand_below_each_other(
    events: list[Event],
) -> None:
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn(events, recording()))
    end = plain[plain.rindex("samples/s") - 2000 :]
    assert all(f"batch_size={batch}" in end for batch in (16, 32, 64, 128))
    assert "1.52x faster than your settings" in end


def test_a_terminal_without_unicode_gets_signs_that_it_knows(events: list[Event]) -> None:
    class Ascii(io.StringIO):
        encoding = "ascii"

    console = Console(width=120, height=40, file=Ascii(), force_terminal=True)
    progress = LiveProgress(console, now=lambda: NOON)
    for event in until(events, TrialEnded, 5):
        progress.show(event)
    console.print(progress.board)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "####" in text
    assert "+ baseline" in text
    assert text.isascii()


def test_more_trials_than_fit_show_the_last_ones(events: list[Event]) -> None:
    console = Console(width=100, height=14, file=io.StringIO(), force_terminal=True)
    progress = LiveProgress(console, now=lambda: NOON)
    for event in until(events, TrialEnded, 5):
        progress.show(event)
    console.file = io.StringIO()
    console.print(progress.board)
    text = console.file.getvalue()
    assert text.count("ok") + text.count("infeasible") == 3
    assert len(text.splitlines()) <= 14


def run_by(events: list[Event], **options: object) -> list[Event]:
    """The events as a search with these options would tell them."""
    (planned,) = [event for event in events if isinstance(event, Planned)]
    other = changed(planned.context.options, **options)
    plan = replace(planned, context=replace(planned.context, options=other))
    return [plan if event is planned else event for event in events]


def drawings(events: list[Event]) -> list[tuple[Event, float]]:
    """Return each event that was drawn and when, for events that come every tenth of a second."""
    clock, found = NOON, []
    console = recording()
    assert isinstance(console.file, io.StringIO)
    progress = LiveProgress(console, now=lambda: clock)
    with progress.drawn():
        for event in events:
            before = console.file.tell()
            progress.show(event)
            if console.file.tell() > before:
                found.append((event, clock))
            clock += 0.1
    return found


SERVER = "postgresql://tuner@studies.example/all"
OF_MANY = [{"at_once": 8, "storage": None}, {"at_once": 1, "storage": SERVER}]


@pytest.mark.parametrize("options", OF_MANY, ids=["devices", "server"])
def test_a_search_beside_others_is_drawn_once_a_second_at_most_and_nothing_waits(
    events: list[Event], options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        pytest.fail(f"the search was held up for {seconds} s")

    monkeypatch.setattr("time.sleep", sleep)
    trials = until(events, TrialEnded, 5)
    many = run_by([*trials, *trials[-1:] * 50, *events[len(trials) :]], **options)
    found = drawings(many)
    phases = [(event, at) for event, at in found if isinstance(event, PhaseStarted)]
    assert [event.phase for event, _ in phases] == list(get_args(Phase))
    (_, search), (_, confirmation) = phases[2:]
    times = [at for _, at in found if search <= at < confirmation]
    gaps = [after - before for before, after in pairwise(times)]
    assert min(gaps) >= 1 - 1e-6
    assert max(gaps) < 1.2
    # In the confirmation there is nobody else, except for workers on a server.
    rounds = [event for event, _ in found if isinstance(event, RoundEnded)]
    assert bool(rounds) == (options["storage"] is None)


def test_a_search_alone_is_drawn_at_each_event(events: list[Event]) -> None:
    assert [event for event, _ in drawings(events)] == events


def test_events_that_were_not_drawn_in_time_stand_there_in_the_end(events: list[Event]) -> None:
    seen = run_by(until(events, TrialEnded, 5), at_once=8)
    found = [event for event, _ in drawings(seen)]
    assert seen[-1] not in found
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn(seen, recording()))
    assert "164.0" in row(plain[plain.rindex("samples/s") :], "batch_size=64")


def test_after_silence_it_is_drawn_once_more_with_the_time_that_went_by(
    events: list[Event],
) -> None:
    clock = NOON
    console = recording()
    assert isinstance(console.file, io.StringIO)
    progress = LiveProgress(console, now=lambda: clock)
    with progress.drawn():
        progress.wait(10.0)
        assert "... inspecting machine and file, 10 s so far" in console.file.getvalue()
        for event in run_by(until(events, TrialStarted, 2), at_once=8):
            progress.show(event)
        before = console.file.tell()
        clock += 70.0
        progress.wait(70.0)
        text = console.file.getvalue()[before:]
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert re.search(r"trial 2: batch_size=\d+\n1 min 10 s gone", plain)


def test_drawing_starts_no_thread_that_could_wake_up_while_a_child_is_timed(
    events: list[Event],
) -> None:
    before = threading.active_count()
    progress = LiveProgress(recording())
    with progress.drawn():
        for event in events:
            progress.show(event)
        assert threading.active_count() == before


def interrupted(progress: LiveProgress, events: list[Event]) -> None:
    """Somebody presses Ctrl-C after these events."""
    with progress.drawn():
        for event in events:
            progress.show(event)
        raise KeyboardInterrupt


def test_an_error_leaves_the_cursor_and_the_trials_so_far(events: list[Event]) -> None:
    console = recording()
    progress = LiveProgress(console)
    with pytest.raises(KeyboardInterrupt):
        interrupted(progress, until(events, TrialEnded, 3))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)
    assert "batch_size" in text[text.rindex(SHOW_CURSOR) :]


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


class Gone(io.StringIO):
    """A terminal that is there until it is taken away."""

    is_gone = False

    def write(self, text: str) -> int:
        if self.is_gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def hung_up(progress: LiveProgress, terminal: Gone, events: list[Event]) -> None:
    """The terminal is taken away after these events, which SIGHUP says."""
    with progress.drawn():
        for event in events:
            progress.show(event)
        terminal.is_gone = True
        raise SystemExit(143)


def test_a_terminal_that_is_gone_does_not_hide_why_the_search_ends(events: list[Event]) -> None:
    terminal = Gone()
    progress = LiveProgress(recording(file=terminal))
    with pytest.raises(SystemExit) as ended:
        hung_up(progress, terminal, until(events, TrialEnded, 3))
    assert ended.value.code == 143
    terminal.is_gone = False


def test_nothing_feasible_is_told_on_a_terminal_too(events: list[Event]) -> None:
    text = drawn([events[0], NothingFeasible({"out of host memory": 3})], recording())
    assert "3 x out of host memory" in text
