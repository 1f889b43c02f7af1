"""Inspect machine and workload in a child process, the first of every search and comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.configuration.job import Inspect, Job
from autotune.context.budget_clock import OUT_OF_TIME
from autotune.context.ranks import check_launched
from autotune.process.runner import Runner
from autotune.values.errors import NotSearchedEnoughError, UsageError, WorkloadError
from autotune.values.outcome import (
    Inspected,
    Lost,
    Observed,
    Rejected,
    TimedOut,
    as_failure,
    describe,
)


def inspection_of_device(observed: Observed, deadline_seconds: float = 300.0) -> Job:
    """Return the job that inspects the device on which a script was seen to train."""
    job = inspection(observed.device, None, deadline_seconds)
    return replace(job, task=Inspect(observed.visible_devices, on_host=observed.on_host))


def inspection(device: str, model_path: Path | None, deadline_seconds: float = 300.0) -> Job:
    """Return the job that inspects a device and, with a path, a workload."""
    path = None if model_path is None else str(model_path.resolve())
    return Job(Inspect(), device, path, deadline_seconds=deadline_seconds)


def inspect(runner: Runner, job: Job, folder: Path) -> Inspected:
    """Inspect the machine in a child process, and the workload if the job has a path.

    Raises:
        UsageError: there is no such device.
        WorkloadError: the workload cannot be imported or built.
        NotSearchedEnoughError: the time budget is too short for the inspection.
    """
    outcome = runner.run(job, folder)
    check_launched(job, outcome)
    if isinstance(outcome, Inspected):
        return outcome
    is_cut = isinstance(outcome, TimedOut) and outcome.limit_seconds < job.deadline_seconds
    if is_cut or outcome == Lost(OUT_OF_TIME):
        raise NotSearchedEnoughError(
            "not searched enough: inspecting the machine and the workload took the time budget, or "
            "a quarter of it. Use a --time-budget of at least five times the seconds that building "
            "the model and the dataset takes."
        )
    if isinstance(outcome, Rejected):
        raise UsageError(outcome.detail)
    raise WorkloadError(f"{describe(as_failure(outcome))}\nWhole log: {folder / 'stderr.log'}")
