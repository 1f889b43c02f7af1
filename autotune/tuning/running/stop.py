"""Stopping a search where it hurts least, once a person has asked for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.job import Job
from autotune.outcome import TrialOutcome
from autotune.tuning.running.runner import Runner


class Stop:
    """A request that is heeded between trials, and elsewhere between processes."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._at_once = threading.Event()
        self._here = threading.local()

    def request(self) -> None:
        """Ask the search to stop where it hurts least."""
        self._requested.set()

    def request_at_once(self) -> None:
        """Ask the search to end what runs."""
        self._requested.set()
        self._at_once.set()

    def is_at_once(self) -> bool:
        """Whether what runs is to be ended."""
        return self._at_once.is_set()

    def check(self) -> None:
        """Stop here if that was asked for.

        Raises:
            KeyboardInterrupt: it was.
        """
        if self._requested.is_set() and not getattr(self._here, "in_trial", False):
            raise KeyboardInterrupt

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A context that this thread finishes first, all of its processes."""
        self._here.in_trial = True
        try:
            yield
        finally:
            self._here.in_trial = False


@dataclass(frozen=True)
class StoppableRunner:
    """Another runner that starts no process any more once a stop was asked for."""

    runner: Runner
    stop: Stop

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The other's outcome.

        Raises:
            KeyboardInterrupt: a stop was asked for.
        """
        self.stop.check()
        return self.runner.run(job, folder)
