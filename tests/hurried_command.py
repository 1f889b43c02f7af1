"""The command line with its budgets cut short: `python hurried_command.py search model.py ...`.

All is as `autotune` does it, in real processes, but for how long each child measures and how many
rounds decide.
"""

from __future__ import annotations

from pathlib import Path

import autotune.drive
import autotune.tuning.confirming.confirm
from autotune.cli import main
from autotune.job import Job
from autotune.outcome import TrialOutcome
from autotune.tuning.running.runner import SubprocessRunner
from hurried_runner import shortened


class HurriedSubprocessRunner(SubprocessRunner):
    """Real children with short jobs."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The outcome of the shortened job."""
        return super().run(shortened(job), folder)


if __name__ == "__main__":
    autotune.drive.SubprocessRunner = HurriedSubprocessRunner
    autotune.tuning.confirming.confirm.looks = lambda family: (2,)
    main()
