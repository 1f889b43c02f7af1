"""A search is drawn often enough, takes no time from others, and leaves the terminal in order."""

from __future__ import annotations

import io
import re
import threading
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest

from autotune.console.live import LiveProgress
from autotune.searching.run.events import (
    Event,
    Phase,
    PhaseStarted,
    Planned,
    RoundEnded,
    TrialEnded,
    TrialStarted,
)
from drawn_search import HIDE_CURSOR, NOON, SHOW_CURSOR, drawn, recording, row, until, whole_search
from scripted_runner import changed


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    return whole_search(tmp_path_factory.mktemp("live"))


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
        assert (
            "... looking at the machine, running the file, 10 s so far" in console.file.getvalue()
        )
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
