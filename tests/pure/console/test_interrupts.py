"""Signals become requests to stop a search, unless this process was told to ignore them."""

import signal

import pytest

from autotune.process.stop import Stop, interrupts
from autotune.values.errors import TERMINATED
from covering import covers


@pytest.fixture
def ignored():
    """SIGHUP is ignored, as under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@covers("R3", "R4")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_running_trial_and_the_command(number):
    stop = Stop()
    with pytest.raises(SystemExit) as ended, interrupts(stop):
        signal.raise_signal(number)
    assert ended.value.code == TERMINATED
    assert stop.is_at_once()


@covers("R4")
@pytest.mark.usefixtures("ignored")
def test_a_lost_terminal_is_ignored_under_nohup():
    stop = Stop()
    with interrupts(stop):
        signal.raise_signal(signal.SIGHUP)
    assert not stop.is_requested()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
