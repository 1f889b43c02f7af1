"""The command line with its budgets cut short: `python hurried_command.py search model.py ...`.

All is as `autotune` does it, in real processes, but for how long each child measures, how many
rounds decide, when a worker is taken for dead, and that their processes are forked from the host of
the trials. A processor without bfloat16 instructions counts as one that has them: torch then
emulates them.
"""

from dataclasses import replace
from pathlib import Path

import autotune.commands.execute
import autotune.comparison.race
from autotune.cli import main
from autotune.configuration.job import Job
from autotune.process.runner import SubprocessRunner
from autotune.study import storage
from autotune.values.outcome import Inspected, TrialOutcome
from hurried_runner import from_one_host, shortened


class HurriedSubprocessRunner(SubprocessRunner):
    """Real children with short jobs."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The outcome of the shortened job."""
        outcome = super().run(from_one_host(shortened(job)), folder)
        return _with_bfloat16(outcome) if isinstance(outcome, Inspected) else outcome


def _with_bfloat16(found: Inspected) -> Inspected:
    native = dict.fromkeys(("bfloat16", *found.machine.native_dtypes))
    return replace(found, machine=replace(found.machine, native_dtypes=tuple(native)))


def hurry() -> None:
    """Cut the budgets of all searches of this process short."""
    autotune.commands.execute.SubprocessRunner = HurriedSubprocessRunner
    autotune.comparison.race.ROUND_COUNTS = (2,)
    storage.BEAT_SECONDS, storage.GRACE_SECONDS = 1, 8
    autotune.comparison.race.confidence = lambda *_: 0.5


if __name__ == "__main__":
    hurry()
    main()
