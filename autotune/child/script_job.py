"""Run a job's script; the hooks are set up when the script imports torch, not before."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from autotune.configuration.job import Job
from autotune.scripting.program import AfterImport, run_script
from autotune.system.trial_folder import TrialFolder
from autotune.values.outcome import Lost, TrialOutcome, UserError

if TYPE_CHECKING:
    from autotune.scripting.trial import Trial

# Environment variables that tell a script that it runs as a trial.
_MARKS = {"AUTOTUNE_TRIAL": "1", "WANDB_MODE": "disabled"}


def perform(
    job: Job,
    folder: TrialFolder,
    process_start: float,
    leave: Callable[[TrialOutcome], NoReturn],
) -> TrialOutcome:
    """Run the job's script; return its outcome if the script ends before the job is done.

    `leave` writes an outcome and ends the process; it is called as soon as the job is done.

    Side effect: sets AUTOTUNE_TRIAL and WANDB_MODE in the environment.

    Raises:
        BaseException: whatever the script raises.
    """
    assert job.script is not None
    assert job.model_path is not None
    trials: list[Trial] = []

    def begin() -> None:
        try:
            from autotune.scripting.trial import Trial

            trial = Trial(job, folder, leave)
            trial.begin(process_start)
            trials.append(trial)
        except Exception as error:
            traceback.print_exception(error)
            leave(Lost(f"a fault of autotune beside the script: {error!r}"))

    os.environ.update(_MARKS)
    folder.enter_phase("the script's start, before its first optimizer step")
    AfterImport("torch", begin)
    try:
        run_script(job.model_path, job.script.arguments)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    return trials[0].ended() if trials else UserError("it ended without importing torch", "")
