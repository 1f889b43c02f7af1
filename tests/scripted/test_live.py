"""A search on a terminal shows its state, takes no time from others, and leaves all in order."""

import io
import re
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest

import shown_search
from autotune.console.live import LiveProgress, display
from autotune.searching.run import events as told
from covering import covers
from scripted_runner import changed
from terminals import Terminal, written_to

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
SERVER = "postgresql://tuner@studies.example/all"


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    return shown_search.whole_search(tmp_path_factory.mktemp("live"))


def row(text, word):
    """The first line with a word."""
    return next(line for line in text.splitlines() if word in line)


def test_a_trial_is_a_line_and_stands_among_the_fastest(events):
    seen = shown_search.until(events, told.TrialEnded, 5)
    line = row(shown_search.drawn(seen, shown_search.recording()), "164.0/s")
    assert {"164.0/s", "1.52x", "GiB", "batch_size=64", "ok"} <= set(line.split())
    fastest = row(shown_search.frame(seen), "batch_size=64")
    assert {"2", "164.0", "1.52x", "GiB", "batch_size=64"} <= set(fastest.split())


def test_bars_compare_the_rates_with_computing_alone(events):
    text = shown_search.frame(shown_search.until(events, told.TrialEnded, 5))
    light, trial = (row(text, word).count("━") for word in ("by itself", "batch_size=64"))
    assert light == 15
    assert trial == pytest.approx(164 / 200 * 15, abs=1)


@pytest.mark.parametrize("width", [80, 160])
def test_a_configuration_that_cannot_be_used_says_why_without_markup_and_escapes(events, width):
    text = shown_search.drawn(events, shown_search.recording(width))
    assert "no room for [bold]128" in " ".join(text.split())


def test_the_phase_the_step_and_the_time_of_the_answer_are_told(events):
    seen = shown_search.until(events, told.TrialStarted, 2)
    ended = [event for event in seen if isinstance(event, told.TrialEnded)][-1]
    assert ended.eta_seconds is not None
    text = shown_search.frame(seen)
    assert "search (3 of 4)" in text
    assert re.search(r"since \S+: trial \d+: batch_size=\d+", text)
    answer = re.search(r"elapsed at (\S+), about .* left \(result at ([\d:]+)", text)
    times = [[int(part) for part in clock.split(":")] for clock in answer.groups()]
    seconds = [3600 * hours + 60 * minutes + rest for hours, minutes, rest in times]
    assert (seconds[1] - seconds[0]) % 86_400 == pytest.approx(ended.eta_seconds, abs=1)
    assert "confirmation (4 of 4)" in shown_search.frame(
        shown_search.until(events, told.RoundEnded)
    )


def test_long_settings_leave_the_numbers_their_room(events):
    *before, ended = shown_search.until(events, told.TrialEnded, 5)
    assert isinstance(ended, told.TrialEnded)
    changes = {"num_workers": 2, "amp_dtype": "bfloat16", "channels_last": True}
    config = ended.trial.config.replace(**changes, optimizer_impl="fused")
    trial = replace(ended.trial, number=777, config=config)
    shown = row(
        shown_search.frame([*before, replace(ended, trial=trial, best=trial)], width=60), "777"
    )
    assert re.search(r"777 +132\.0 .*1\.22x .*batch_size=.*…", shown)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(events, width):
    text = shown_search.frame(shown_search.until(events, told.RoundEnded), width)
    assert max(map(len, text.splitlines())) <= width
    assert "1.52x" in text


def test_at_the_end_every_trial_stands_below_the_other(events):
    text = shown_search.drawn(events, shown_search.recording())
    assert all(f"batch_size={batch}" in text for batch in (16, 32, 64, 128))
    assert "1.52x" in text[text.rindex("samples/s") :], "the fastest, last of all"


def test_many_trials_leave_the_state_short(events):
    *before, ended = shown_search.until(events, told.TrialEnded, 5)
    assert isinstance(ended, told.TrialEnded)
    more = [replace(ended, trial=replace(ended.trial, number=number)) for number in range(9, 40)]
    assert len(shown_search.frame([*before, ended, *more]).splitlines()) <= 12


def run_by(events, **options):
    """The events as a search with these options would tell them."""
    (planned,) = [event for event in events if isinstance(event, told.Planned)]
    other = changed(planned.context.options, **options)
    plan = replace(planned, context=replace(planned.context, options=other))
    return [plan if event is planned else event for event in events]


def drawings(events):
    """Return each event that was drawn and when, for events that come every tenth of a second."""
    clock, found = shown_search.NOON, []
    console = shown_search.recording()
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


@pytest.mark.parametrize(
    "options",
    [{"at_once": 8, "storage": None}, {"at_once": 1, "storage": SERVER}],
    ids=["devices", "server"],
)
def test_a_search_beside_others_is_drawn_once_a_second_at_most_and_nothing_waits(
    events, options, monkeypatch
):
    def sleep(seconds):
        pytest.fail(f"the search was held up for {seconds} s")

    monkeypatch.setattr("time.sleep", sleep)
    trials = shown_search.until(events, told.TrialEnded, 5)
    many = run_by([*trials, *trials[-1:] * 50, *events[len(trials) :]], **options)
    found = drawings(many)
    phases = [(event, at) for event, at in found if isinstance(event, told.PhaseStarted)]
    assert [event.phase for event, _ in phases] == list(get_args(told.Phase))
    (_, search), (_, confirmation) = phases[2:]
    times = [at for _, at in found if search <= at < confirmation]
    gaps = [after - before for before, after in pairwise(times)]
    assert min(gaps) >= 1 - 1e-6
    assert max(gaps) < 1.2
    # In the confirmation there is nobody else, except for workers on a server.
    rounds = [event for event, _ in found if isinstance(event, told.RoundEnded)]
    assert bool(rounds) == (options["storage"] is None)


def test_a_search_alone_is_drawn_at_each_event(events):
    assert [event for event, _ in drawings(events)] == events


def test_events_that_were_not_drawn_in_time_stand_there_in_the_end(events):
    seen = run_by(shown_search.until(events, told.TrialEnded, 5), at_once=8)
    assert seen[-1] not in [event for event, _ in drawings(seen)]
    assert "batch_size=64" in row(shown_search.drawn(seen, shown_search.recording()), "164.0/s")


def test_after_silence_it_is_drawn_once_more_with_the_time_that_went_by(events):
    clock = shown_search.NOON
    console = shown_search.recording()
    assert isinstance(console.file, io.StringIO)
    progress = LiveProgress(console, now=lambda: clock)
    with progress.drawn():
        progress.wait(10.0)
        assert "... inspecting the machine and the file, 10 s so far" in console.file.getvalue()
        for event in run_by(shown_search.until(events, told.TrialStarted, 2), at_once=8):
            progress.show(event)
        before = console.file.tell()
        clock += 70.0
        progress.wait(70.0)
        text = shown_search.plain(console.file.getvalue()[before:])
    assert re.search(r"trial 2: batch_size=\d+\n1 min 10 s elapsed", text)


def test_drawing_starts_no_thread_that_could_wake_up_while_a_child_is_timed(events):
    before = threading.active_count()
    progress = LiveProgress(shown_search.recording())
    with progress.drawn():
        for event in events:
            progress.show(event)
        assert threading.active_count() == before


class Gone(io.StringIO):
    """A terminal that is there until it is taken away."""

    is_gone = False

    def write(self, text):
        if self.is_gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def ended_after(events, terminal, error):
    """Somebody ends the search after these events; SystemExit takes its terminal away."""
    progress = LiveProgress(shown_search.recording(file=terminal))
    with progress.drawn():
        for event in events:
            progress.show(event)
        terminal.is_gone = isinstance(error, SystemExit)
        raise error


def test_an_error_leaves_the_cursor_and_the_trials_so_far(events):
    terminal = Gone()
    with pytest.raises(KeyboardInterrupt):
        ended_after(shown_search.until(events, told.TrialEnded, 3), terminal, KeyboardInterrupt())
    text = terminal.getvalue()
    assert text.rindex(shown_search.SHOW_CURSOR) > text.rindex(shown_search.HIDE_CURSOR)
    assert "batch_size" in text[text.rindex(shown_search.SHOW_CURSOR) :]


def test_a_terminal_that_is_gone_does_not_hide_why_the_search_ends(events):
    terminal = Gone()
    with pytest.raises(SystemExit) as ended:
        ended_after(shown_search.until(events, told.TrialEnded, 3), terminal, SystemExit(143))
    assert ended.value.code == 143
    terminal.is_gone = False


@pytest.fixture
def plain_environment(monkeypatch):
    """An environment that says nothing of colours or CI, to be changed."""
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


def shown_on(terminal, events, mode):
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
def test_a_terminal_is_drawn_on_and_left_as_it_was(events, mode, capsys):
    text = shown_on(Terminal(), events, mode)
    assert COLOUR.search(text)
    assert text.rindex(shown_search.SHOW_CURSOR) > text.rindex(shown_search.HIDE_CURSOR)
    assert capsys.readouterr().out == ""


@covers("P5")
@pytest.mark.parametrize(
    ("name", "value", "columns", "mode"),
    [
        *(("TERM", "dumb", 80, "auto"), ("TERM", "dumb", 80, "rich")),
        *(("NO_COLOR", "1", 80, "auto"), ("NO_COLOR", "1", 80, "rich"), ("CI", "1", 80, "auto")),
        ("TERM", "xterm", 59, "rich"),
    ],
)
def test_a_terminal_that_cannot_be_drawn_on_gets_lines_without_control_characters(
    plain_environment, events, name, value, columns, mode
):
    plain_environment.setenv(name, value)
    text = shown_on(Terminal(columns=columns), events, mode)
    assert shown_search.ESCAPE not in text
    assert "best so far: trial" in text


@covers("P5")
@pytest.mark.parametrize("mode", ["auto", "rich", "plain"])
def test_a_pipe_gets_lines(events, mode, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with display(mode) as show:
        for event in events:
            show(event)
    said = capsys.readouterr()
    assert shown_search.ESCAPE not in said.err
    assert "best so far: trial" in said.err
    assert said.out == ""
