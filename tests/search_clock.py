"""A clock that a test or a scripted runner moves, in the place of the one that a search reads."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.configuration.job import Job
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import TimedOut, TrialOutcome
from scripted_runner import ScriptedRunner

_FOLDERS = (
    "autotune.accuracy.",
    "autotune.context.",
    "autotune.process.stop",
    "autotune.searching.",
)


@dataclass(frozen=True)
class _Clock:
    """The functions of the module `time` that a search uses."""

    monotonic: Callable[[], float]

    def sleep(self, seconds: float) -> None:
        """Go on at once."""


def use_clock(monkeypatch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """Let a search read its seconds from `now` and never sleep, wherever it looks at a clock."""
    readers = [
        module
        for name, module in sys.modules.items()
        if name.startswith(_FOLDERS) and _is_clock(getattr(module, "time", None))
    ]
    assert readers, "nothing of a search was imported"
    for module in readers:
        monkeypatch.setattr(module, "time", _Clock(now))


def _is_clock(found: object) -> bool:
    return found is time or isinstance(found, _Clock)


@dataclass
class TimedRunner(ScriptedRunner):
    """Every job takes its seconds of a clock; one that hangs takes as long as it may."""

    seconds: Callable[[TrainingConfig | None, str], float] = lambda config, phase: 5.0
    hangs: Callable[[TrainingConfig], bool] = lambda config: False
    now: float = field(default_factory=time.monotonic)
    begun: float = 0.0

    def __post_init__(self) -> None:
        self.begun = self.now

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The outcome of the script, once its seconds are over."""
        outcome = super().run(job, folder)
        config = None if job.config is None else TrainingConfig.of(job.config)
        if config is not None and self.hangs(config):
            self.now += job.deadline_seconds
            return TimedOut("measure", job.deadline_seconds)
        self.now += self.seconds(config, self.asked[-1].phase)
        return outcome

    @property
    def elapsed(self) -> float:
        """Seconds of the clock so far."""
        return self.now - self.begun


def timed_runner(
    monkeypatch: pytest.MonkeyPatch, kind: type[TimedRunner] = TimedRunner, **changes: Any
) -> TimedRunner:
    """A runner whose clock is that of the search."""
    runner = kind(**changes)
    use_clock(monkeypatch, lambda: runner.now)
    return runner
