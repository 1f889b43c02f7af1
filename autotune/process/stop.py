"""Stop a search at a person's request, or when its time budget ends.

In a search, the first Ctrl-C lets the running trial finish, the second ends it. The third ends this
process at once, and its children with it. SIGTERM and SIGHUP act like the second Ctrl-C. Ignored
signals stay ignored, as under `nohup`. A shorter command ends at once.

A cluster's scheduler sends its signal to all processes of a job. The process of a trial is ended by
that, perhaps sooner than this one hears of it. Such a trial has not failed; it was interrupted.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from autotune.configuration.job import Inspect, Job, Measure, Observe, Probe, TakeFirstSteps
from autotune.process.runner import Runner
from autotune.values.errors import INTERRUPTED, TERMINATED, NotSearchedEnoughError
from autotune.values.outcome import Answer, Lost, Measured, TimedOut, TrialOutcome, describe

# Words in a failure for signals that ask a process to end.
_ASKED_TO_END = re.compile("SIGTERM|SIGINT|SIGHUP|KeyboardInterrupt|signal: (Terminated|Interrupt)")
_ON_ITS_WAY_SECONDS = 0.3
OUT_OF_TIME = "the time budget ended while it ran"
"""Detail of a process that the budget cut off, which says nothing about its configuration."""
# A process that hangs may take this share of the budget, and at least these seconds.
_SHARE_OF_ONE, _LEAST_SECONDS = 1 / 4, 15.0
# A timing that began in time may go on for these seconds, or this multiple of the longest so far.
_GRACE_SECONDS, _GRACE = 10.0, 2.0
_FINISHING = "\nFinishing the running trial, then stopping. Press Ctrl-C again to stop now.\n"
_ENDING = "\nStopping the running trial. Press Ctrl-C again to exit at once.\n"
_AT_ONCE = 3


class Stop:
    """A request to stop, obeyed between trials and, outside of trials, between processes."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._at_once = threading.Event()
        self._here = threading.local()

    def request(self) -> None:
        """Ask the search to stop after the running trial or process."""
        self._requested.set()

    def request_at_once(self) -> None:
        """Ask the search to end the running process and stop."""
        self._requested.set()
        self._at_once.set()

    def is_requested(self) -> bool:
        """Return True if the search is to stop."""
        return self._requested.is_set()

    def is_at_once(self) -> bool:
        """Return True if the running process is to be ended."""
        return self._at_once.is_set()

    def check(self) -> None:
        """Stop here if that was asked for, unless this thread is in a trial.

        Raises:
            KeyboardInterrupt: a stop was asked for.
        """
        if self._requested.is_set() and not getattr(self._here, "in_trial", False):
            raise KeyboardInterrupt

    @contextmanager
    def comes_first(self) -> Iterator[None]:
        """Stop the block for a request, where it ends for want of time after one.

        Raises:
            KeyboardInterrupt: a stop was asked for.
            NotSearchedEnoughError: none was.
        """
        try:
            yield
        except NotSearchedEnoughError:
            self.check()
            raise

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Let this thread finish all processes of the block before it obeys a request."""
        self._here.in_trial = True
        try:
            yield
        finally:
            self._here.in_trial = False


@dataclass(frozen=True)
class StoppableRunner:
    """A wrapper of a runner that starts no further process once a stop was asked for."""

    runner: Runner
    stop: Stop

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Run the job and return its outcome.

        Raises:
            KeyboardInterrupt: a stop was asked for, or asked of all processes while the job ran.
        """
        self.stop.check()
        outcome = self.runner.run(job, folder)
        if not isinstance(outcome, Answer) and _ASKED_TO_END.search(describe(outcome)):
            time.sleep(_ON_ITS_WAY_SECONDS)  # the signal may reach this process later
            if self.stop.is_requested():
                raise KeyboardInterrupt
        return outcome


@dataclass(frozen=True)
class Clock:
    """Clock of one run of a search, from its first process to best.yaml."""

    seconds: float | None = None
    """Length of the time budget; None for no limit."""
    started: float = field(default_factory=time.monotonic)
    """Start of the search in seconds of the monotonic clock."""

    @property
    def elapsed(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float:
        """Seconds until the budget ends, negative afterwards; infinite without one."""
        return float("inf") if self.seconds is None else self.seconds - self.elapsed

    @property
    def known_left(self) -> float | None:
        """Seconds until the budget ends, at least 0; None without one."""
        return None if self.seconds is None else max(0.0, self.left)

    @property
    def is_over(self) -> bool:
        """True once the budget is spent."""
        return self.left < 0

    def most_of_one(self) -> float:
        """Return the seconds after which a process is assumed to hang; infinite without a limit."""
        if self.seconds is None:
            return float("inf")
        return max(_LEAST_SECONDS, _SHARE_OF_ONE * self.seconds)


_PATIENT = (Measure, Inspect, Observe, TakeFirstSteps)


@dataclass
class BudgetedRunner:
    """A runner that caps every deadline of another one by the seconds left of the time budget.

    A process that the budget cuts off is `Lost`, which says nothing about its configuration. It is
    not run again with no more time. A timing, inspection or observation that takes longer than one
    process may is `TimedOut`.
    """

    runner: Runner
    clock: Clock
    _longest_timing: float = 0.0
    _cut_off: dict[str, float] = field(default_factory=dict)
    """Deadlines that were too short, by task and configuration."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Run `job` for no longer than the budget allows."""
        is_timing = isinstance(job.task, Measure)
        left = self.clock.left
        if left <= 0 and not is_timing:
            return Lost(OUT_OF_TIME)
        start = time.monotonic()
        seeds = len(job.task.seeds) if isinstance(job.task, Probe) else 1
        own = min(job.deadline_seconds, seeds * self.clock.most_of_one())
        grace = max(_GRACE_SECONDS, _GRACE * self._longest_timing) if is_timing else left
        deadline = min(own, max(left, grace))
        known = repr((job.task, sorted((job.config or {}).items())))
        if deadline <= self._cut_off.get(known, 0.0):
            return Lost(OUT_OF_TIME)
        outcome = self.runner.run(replace(job, deadline_seconds=deadline), folder)
        if isinstance(outcome, Measured):
            self._longest_timing = max(self._longest_timing, time.monotonic() - start)
        patience = own if isinstance(job.task, _PATIENT) else job.deadline_seconds
        if isinstance(outcome, TimedOut) and deadline < patience:
            self._cut_off[known] = deadline
            return Lost(OUT_OF_TIME)
        return outcome


@contextmanager
def interrupts(stop: Stop) -> Iterator[None]:
    """Turn signals into requests to `stop`, or end the block, while it runs."""
    count = 0

    def interrupt(*_: object) -> None:
        nonlocal count
        count += 1
        if count >= _AT_ONCE:
            os._exit(INTERRUPTED)
        if count == 1:
            _say(_FINISHING)
            stop.request()
            return
        _say(_ENDING)
        stop.request_at_once()
        raise KeyboardInterrupt

    def terminate(*_: object) -> NoReturn:
        stop.request_at_once()
        _terminate()

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate, signal.SIGHUP: terminate}
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def unwind_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit, so that the running child is killed on the way out."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(*_: object) -> NoReturn:
    sys.exit(TERMINATED)


def _say(text: str) -> None:
    """Write past `sys.stderr`, which the signal may have interrupted within a line."""
    with suppress(OSError):
        os.write(2, text.encode())
