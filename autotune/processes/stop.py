"""Stop a search at a person's request, between trials or at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.configuration.job import Job
from autotune.processes.runner import Runner
from autotune.values.outcome import TrialOutcome


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
            KeyboardInterrupt: a stop was asked for.
        """
        self.stop.check()
        return self.runner.run(job, folder)
