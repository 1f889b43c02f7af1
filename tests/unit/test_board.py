"""The board of a search shows its trials, its phases, its rounds and the time left."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from autotune.console.live import LiveProgress
from autotune.searching.run.events import (
    Event,
    PhaseStarted,
    RoundEnded,
    RoundVoid,
    StagesTimed,
    StepStarted,
    TrialEnded,
)
from drawn_search import NOON, drawn, frame, recording, row, until, whole_search


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    return whole_search(tmp_path_factory.mktemp("live"))


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


def test_a_narrow_terminal_has_the_whole_reason_of_the_last_trial(events: list[Event]) -> None:
    failed = [
        number
        for number, event in enumerate(events, 1)
        if isinstance(event, TrialEnded) and not event.trial.verdict.feasible
    ]
    shown = frame(events[: failed[0]], width=80)
    assert "no room for [bold]128" not in row(shown, "batch_size=128")
    assert "no room for [bold]128" in " ".join(shown.split())


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
    config = ended.trial.config.replace(**changes, optimizer_impl="fused")
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


def test_at_the_end_every_trial_stands_below_the_other(events: list[Event]) -> None:
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn(events, recording()))
    end = plain[plain.rindex("samples/s") - 2000 :]
    assert all(f"batch_size={batch}" in end for batch in (16, 32, 64, 128))


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
