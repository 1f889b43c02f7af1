"""Signs of life while nothing else is said."""

import time
from contextlib import suppress

import pytest

from autotune.console.progress import Waiting

EVERY = 0.0625
"""Exact in binary, so that whole multiples of it are."""


class Clock:
    """Seconds that go by only where a test says so."""

    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("autotune.console.progress.time", clock)
    return clock


def happens(condition):
    """Wait for a condition, for half a minute at most."""
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(EVERY / 8)
    return condition()


def test_silence_is_told_again_and_again_with_all_the_seconds_that_it_took(clock):
    said = []
    with Waiting(said.append, EVERY).running():
        for periods in (1, 2, 7):
            clock.now = periods * EVERY
            assert happens(lambda: clock.now in said)
    assert sorted(set(said)) == [EVERY, 2 * EVERY, 7 * EVERY]


def test_nothing_is_told_where_something_was_said_lately(clock):
    said = []
    waiting = Waiting(said.append, EVERY)
    with waiting.running():
        clock.now = 9 * EVERY
        with waiting.saying():
            del said[:]
        clock.now += EVERY / 2
        time.sleep(4 * EVERY)
        assert said == []
        clock.now += EVERY / 2
        assert happens(lambda: said != [])
    assert set(said) == {EVERY}, "counted from what was said last"


def test_a_sign_waits_until_what_is_being_said_is_complete(clock):
    said = []
    waiting = Waiting(said.append, EVERY)
    with waiting.running(), waiting.saying():
        del said[:]
        clock.now = 5 * EVERY
        time.sleep(4 * EVERY)
        assert said == []


def test_a_message_that_fails_counts_as_said(clock):
    said = []
    waiting = Waiting(said.append, EVERY)
    with waiting.running():
        with suppress(ValueError), waiting.saying():
            clock.now = 3 * EVERY
            raise ValueError("no such line")
        time.sleep(4 * EVERY)
        assert said == []


def test_it_ends_with_the_block_however_that_ends(clock):
    said = []
    with pytest.raises(KeyboardInterrupt), Waiting(said.append, EVERY).running():
        raise KeyboardInterrupt
    clock.now = 5 * EVERY
    time.sleep(4 * EVERY)
    assert said == []


def test_a_terminal_that_is_gone_ends_nothing(clock):
    tried = []

    def say(seconds):
        tried.append(seconds)
        raise OSError(5, "Input/output error")

    with Waiting(say, EVERY).running():
        clock.now = EVERY
        assert happens(lambda: len(tried) >= 2)
