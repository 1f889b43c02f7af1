"""Stop a search at a person's request, between trials or at once.

A cluster's scheduler sends its signal to all processes of a job. The process of a trial is ended by
that, perhaps sooner than this one hears of it. Such a trial has not failed; it was interrupted.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.configuration.job import Job
from autotune.process.runner import Runner
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.outcome import Answer, TrialOutcome, describe

# Words in a failure for signals that ask a process to end.
_ASKED_TO_END = re.compile("SIGTERM|SIGINT|SIGHUP|KeyboardInterrupt|signal: (Terminated|Interrupt)")
_ON_ITS_WAY_SECONDS = 0.3


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
