"""Real children that are measured and probed as briefly as can be, or forked from one host.

Importing torch takes seconds: a test that is about what a child finds, and not about how it was
started, need not pay for it. `test_shared_dataset` shows that both have the same outcome.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.configuration.job import SEARCH_HOST, Diagnose, Job, Measure, Probe, Task
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import TrialOutcome
from children import QUICK
from factories import StandIn

SAMPLES = 512


@dataclass(frozen=True)
class HurriedRunner:
    """Another runner whose jobs are cut short."""

    runner: SubprocessRunner
    one_host: bool = True
    """True if all processes are forked from one interpreter, also those of different rounds."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The outcome of the shortened job, from a process of its own."""
        short = shortened(job)
        return self.runner.run(from_one_host(short) if self.one_host else short, folder)


def from_one_host(job: Job) -> Job:
    """The same job; if it is forked, then from the host from which trials are."""
    return replace(job, host=job.host and SEARCH_HOST)


def shortened(job: Job) -> Job:
    """The same job, measured and probed as briefly as can be."""
    return replace(job, task=_shortened(job.task))


def _shortened(task: Task) -> Task:
    match task:
        case Measure():
            return Measure(QUICK)
        case Diagnose():
            return Diagnose(QUICK, (0,), min(1.0, task.watch_seconds))
        case Probe():
            return replace(task, samples=SAMPLES)
        case _:
            return task


@dataclass(frozen=True)
class OneHost(StandIn):
    """A class of runners that are all the same one, which stays open."""

    runner: SubprocessRunner

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The outcome of the job from a fork that builds its dataset itself."""
        return self.runner.run(replace(from_one_host(job), fresh_data=True), folder)


def decide_after(rounds: int, set_attribute: Callable[[str, object], object]) -> None:
    """Let the test decide once, after `rounds`, at an interval of 50 %: mostly chance."""
    set_attribute("autotune.comparison.race.ROUND_COUNTS", (rounds,))
    set_attribute("autotune.comparison.race.confidence", lambda *_: 0.5)
