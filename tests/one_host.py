"""Commands in this process with real children, all forked from one host that builds nothing.

Importing torch takes seconds: a test that is about what a child finds, and not about how it was
started, need not pay for it. `test_shared_dataset` shows that both have the same outcome.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from autotune.configuration.job import SEARCH_HOST, Job
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import TrialOutcome


def from_one_host(job: Job) -> Job:
    """The same job; if it is forked, then from the host from which trials are."""
    return replace(job, host=job.host and SEARCH_HOST)


@dataclass(frozen=True)
class OneHost:
    """A class of runners that are all the same one, which stays open."""

    runner: SubprocessRunner

    def __call__(self, *_: object, **__: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The outcome of the job from a fork that builds its dataset itself."""
        return self.runner.run(replace(from_one_host(job), fresh_data=True), folder)
