"""Look once before a search or comparison: at machine and workload, and at a script's own run.

Both happen in child processes, the first ones of all.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from autotune.calling.arguments import files_digest
from autotune.configuration.job import Inspect, Job, Observe
from autotune.configuration.script import ScriptOptions
from autotune.context.options import Resources, WorkloadOptions
from autotune.context.ranks import check_launched
from autotune.context.script_ways import Wanted, mapped
from autotune.context.workload import Traits, traits_of_model
from autotune.process.common.trial_folder import FIRST_STEPS, TrialFolder, write_atomically
from autotune.process.runner import Runner
from autotune.process.stop import OUT_OF_TIME
from autotune.values import outcome as outcomes
from autotune.values.errors import NotSearchedEnoughError, UsageError, WorkloadError
from autotune.values.text import flag_of_seconds, span

# As argparse does, once it has said what it lacks.
_ONLY_A_NUMBER = re.compile(r"sys\.exit\(\d+\)$")
# What torch and Python say of a script that was started without a launcher.
_NEEDS_LAUNCHER = re.compile(
    r"environment variable \w+ expected, but not set|process group has not been initialized|"
    r"^KeyError: '(LOCAL_RANK|RANK|WORLD_SIZE)'"
)
# Ways in which a script starts processes of its own, which are not looked into.
_STARTS_OTHERS = re.compile(
    r"\.spawn\(|\bstart_processes\(|\bProcess\(|\bnotebook_launcher\(|\btorchrun\b|"
    r"\btorch\.distributed\.(run|launch)\b"
)
_MOST_WORDS = 300
_STARTS = 20  # of a script that an answer takes, roughly
_TRACEBACK = "Traceback (most recent call last)"


def inspection(device: str, model_path: Path | None, deadline_seconds: float = 300.0) -> Job:
    """Return the job that inspects a device and, with a path, a workload."""
    path = None if model_path is None else str(model_path.resolve())
    return Job(Inspect(), device, path, deadline_seconds=deadline_seconds)


class Looked(NamedTuple):
    """A workload and its machine, as their first processes showed them."""

    traits: Traits
    inspected: outcomes.Inspected
    start_seconds: float
    """Seconds of a start, without building the dataset."""
    notes: tuple[str, ...] = ()
    """Notes on a script's flags."""


def look(
    workload: WorkloadOptions, resources: Resources, runner: Runner, folder: Path, wanted: Wanted
) -> Looked:
    """Inspect machine and workload; a script is run for some steps to observe it.

    Raises:
        UsageError: there is no such device, or the script lacks a flag that is named.
        WorkloadError: the workload cannot be built, or fails.
        NotSearchedEnoughError: the time budget is too short for the inspection.
    """
    script, deadline = workload.script, wanted.deadline_seconds
    if script is None:
        job = inspection(resources.device, workload.model_path, deadline)
        task = Inspect(baseline=workload.baseline)
        job = resources.started(replace(job, task=task, fresh_data=workload.fresh_data))
        found, seconds = _timed(runner, job, folder)
        assert found.workload is not None
        traits = traits_of_model(found.workload, found.machine.device, found.processes)
        return Looked(traits, found, seconds)
    seen = observe(script, workload.model_path, resources, runner, folder / "script", wanted)
    of_script, notes = mapped(script, seen, wanted)
    job = inspection(seen.device, None, deadline)
    job = replace(job, task=Inspect(seen.visible_devices, processes=seen.processes))
    if resources.launch:  # which may show a script other devices
        job = resources.started(job)
    found, seconds = _timed(runner, job, folder)
    # The host of the script is warm by now.
    return Looked(of_script, found, max(seconds, seen.import_seconds), notes)


def _timed(runner: Runner, job: Job, folder: Path) -> tuple[outcomes.Inspected, float]:
    started = time.monotonic()
    found = inspect(runner, job, folder)
    return found, max(0.0, time.monotonic() - started - found.dataset_seconds)


def inspect(runner: Runner, job: Job, folder: Path) -> outcomes.Inspected:
    """Inspect the machine in a child process, and the workload if the job has a path.

    Raises:
        UsageError: there is no such device.
        WorkloadError: the workload cannot be imported or built.
        NotSearchedEnoughError: the time budget is too short for the inspection.
    """
    outcome = runner.run(job, folder)
    check_launched(job, outcome)
    if isinstance(outcome, outcomes.Inspected):
        return outcome
    is_cut = isinstance(outcome, outcomes.TimedOut) and outcome.limit_seconds < job.deadline_seconds
    if is_cut or outcome == outcomes.Lost(OUT_OF_TIME):
        raise NotSearchedEnoughError(
            "not searched enough: inspecting the machine and the model took the whole time budget, "
            "or a quarter of it. Use a --time-budget at least five times as long as it takes to "
            "build the model and the dataset."
        )
    if isinstance(outcome, outcomes.Rejected):
        raise UsageError(outcome.detail)
    raise WorkloadError(
        f"{outcomes.describe(outcomes.as_failure(outcome))}\nWhole log: {folder / 'stderr.log'}"
    )


def observe(
    script: ScriptOptions,
    path: Path,
    resources: Resources,
    runner: Runner,
    folder: Path,
    wanted: Wanted,
) -> outcomes.Observed:
    """Run a script as it is for some steps, and for longer if its loss should fall meanwhile.

    What an earlier observation in this folder said of the same script's loss still holds, so that
    the same search continues.

    Raises:
        UsageError: a launcher does not start the script.
        WorkloadError: the script fails, or trains in a way that cannot be tuned from outside.
        NotSearchedEnoughError: its steps are too slow for the time budget.
    """
    # Arguments may hold secrets.
    words = json.dumps([script.arguments, files_digest(script.arguments)]).encode()
    source = hashlib.sha256(path.read_bytes() + words).hexdigest()
    known = _known_loss(folder, source) if wanted.loss_seconds else None
    job = Job(
        Observe(0.0 if known else wanted.loss_seconds, source, script.watch_seconds),
        device="auto",
        model_path=str(path.resolve()),
        script=script.untouched(wanted.calls),
        deadline_seconds=wanted.deadline_seconds,
    )
    job = resources.started(job)
    outcome = runner.run(job, folder)
    if isinstance(outcome, outcomes.Observed):
        if known is not None:
            outcome = replace(outcome, loss=known)
            write_atomically(TrialFolder(folder).outcome, outcomes.outcome_to_json(outcome))
        return outcome
    check_launched(job, outcome)
    stepped = TrialFolder(folder).phase == FIRST_STEPS
    message = (
        f"{job.model_path}, run as a training script: {_reason(outcome, job, stepped)}"
        f"{_last_words(outcome, folder)}\n{_advice(outcome, job, script, stepped)}"
        f"Whole log: {folder / 'stderr.log'}"
    )
    limit = outcome.limit_seconds if isinstance(outcome, outcomes.TimedOut) else math.inf
    if stepped and limit < job.deadline_seconds:
        raise NotSearchedEnoughError(message, seconds=_STARTS * limit)
    raise WorkloadError(message)


def _last_words(outcome: outcomes.TrialOutcome, folder: Path) -> str:
    """Return the last line on stderr of a script that left with no more than a number."""
    if not isinstance(outcome, outcomes.UserError) or not _ONLY_A_NUMBER.search(outcome.detail):
        return ""
    with suppress(OSError):
        said = (folder / "stderr.log").read_text(encoding="utf-8", errors="replace")
        lines = said.partition(_TRACEBACK)[0].strip().splitlines()
        return f": {lines[-1].strip()[:_MOST_WORDS]}" if lines else ""
    return ""


def _advice(outcome: outcomes.TrialOutcome, job: Job, script: ScriptOptions, stepped: bool) -> str:
    """Return the line on what to do about a script that cannot be tuned; it ends in a newline."""
    match outcome:
        case outcomes.TimedOut() | outcomes.UserError(_, "") if not stepped and _starts_others(job):
            return (
                "It may train in processes that it starts itself, which autotune does not see. Let "
                "a launcher such as torchrun start them, and give --nproc-per-node N.\n"
            )
        case outcomes.TimedOut():
            return ""
        case outcomes.UserError(detail) if _NEEDS_LAUNCHER.search(detail) and not job.is_of_ranks:
            return (
                "It trains in processes that a launcher such as torchrun starts: give "
                "--nproc-per-node N.\n"
            )
        case outcomes.UserError(detail) if "too few to be timed" in detail:
            return ""
        case outcomes.UserError(_, where) if where:
            ran = "It ran with the arguments after `--` and without terminal input"
            if script.workdir is not None:
                ran += ", in its own directory (--workdir), where relative paths start"
            return f"{ran}.\n"
        case _:
            return (
                "Describe the training in a model.py instead: `autotune init` writes a template.\n"
            )


def _starts_others(job: Job) -> bool:
    """Return True if the script's source names a way to start processes that train."""
    with suppress(OSError):
        source = Path(str(job.model_path)).read_text(encoding="utf-8", errors="replace")
        return not job.is_of_ranks and bool(_STARTS_OTHERS.search(source))
    return False


def _known_loss(folder: Path, source: str) -> outcomes.ObservedLoss | None:
    """Return what an earlier observation of the same script found of its loss."""
    try:
        earlier = outcomes.outcome_from_json(TrialFolder(folder).outcome.read_bytes())
    except OSError:
        return None
    loss = earlier.loss if isinstance(earlier, outcomes.Observed) else None
    return loss if loss is not None and loss.source == source else None


def _reason(outcome: outcomes.TrialOutcome, job: Job, stepped: bool) -> str:
    match outcome:
        case outcomes.TimedOut(_, limit):
            lacks = "too few steps to be timed" if stepped else "no training step"
            more = f"let it take longer: --trial-timeout {flag_of_seconds(2 * limit)}"
            if limit < job.deadline_seconds:
                budget = flag_of_seconds(math.ceil(_STARTS * limit / 60) * 60)
                more = f"a result takes {_STARTS} starts of the script: give --time-budget {budget}"
            return f"{lacks} within {span(limit)}; {more} or more"
        case outcomes.Crashed(detail) if stepped:
            return f"it ended during its first steps: {detail}"
        case outcomes.Crashed(detail):
            return f"it made no training step: {detail}"
        case _:
            return outcomes.describe(outcomes.as_failure(outcome))


def check_device(observed: outcomes.Observed, device: str) -> None:
    """Check that a script trains on the device that was chosen for its processes.

    Raises:
        UsageError: it chooses another one itself.
    """
    visible, kind = observed.visible_devices, observed.device.partition(":")[0]
    if device != "auto" and visible is not None:
        raise UsageError(
            f"--device: the script sets CUDA_VISIBLE_DEVICES={visible} itself, so all trials would "
            "share a device. Do not set it in the script."
        )
    if device != "auto" and kind != device.partition(":")[0]:
        raise UsageError(
            f"--device: the script trains on {observed.device}, as its own arguments say. Change "
            f"these, or name devices of that kind."
        )
