"""A runner with real children that measures and probes as briefly as can be."""

from dataclasses import dataclass, replace
from pathlib import Path

from autotune.configuration.job import Diagnose, Job, Measure, Probe, Task
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import TrialOutcome
from children import QUICK
from one_host import from_one_host

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


def shortened(job: Job) -> Job:
    """The same job, measured and probed as briefly as can be."""
    return replace(job, task=_shortened(job.task))


def _shortened(task: Task) -> Task:
    match task:
        case Measure():
            return Measure(QUICK)
        case Diagnose():
            return Diagnose(QUICK, (0,))
        case Probe():
            return replace(task, samples=SAMPLES)
        case _:
            return task
