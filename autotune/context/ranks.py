"""A search whose trials are several processes: who starts them, how many fit, what each may use."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace

from autotune.configuration import job as jobs
from autotune.configuration.search_space import SpaceFile
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import Resources, SearchOptions
from autotune.knobs import knob_named
from autotune.knobs.base import Value, spelled
from autotune.knobs.ranks import ALONE
from autotune.values.errors import UsageError
from autotune.values.machine import Machine, nvidia_gpus, probe_host
from autotune.values.outcome import Lost, TrialOutcome

_OF_ALL = (jobs.Measure, jobs.Probe, jobs.TakeFirstSteps, jobs.Diagnose, jobs.CountFlops)


def check_room(resources: Resources) -> None:
    """Check that so many processes can train here, before any is started.

    Raises:
        UsageError: there are fewer cores and GPUs, the device is one of several, or there is no
            such launcher.
    """
    count, device, launcher = resources.processes, resources.device, resources.launch
    if launcher is None and count == 1:
        return
    kind, _, number = device.partition(":")
    if number:
        flag = f"--nproc-per-node {count}" if launcher is None else "--launcher"
        raise UsageError(
            f"--device {device} with {flag}: each process takes the device of its number. Give "
            f"--device {kind}."
        )
    if launcher is not None:
        _check_launcher(launcher)
        return
    cores, gpus = probe_host().usable_cores, len(nvidia_gpus() or ())
    is_on_gpus = gpus and device == "cuda"
    room = cores if device == "cpu" else gpus if is_on_gpus else max(cores, gpus)
    if count > room:
        found = f"{gpus} GPUs" if is_on_gpus or room > cores else f"{cores} cores"
        raise UsageError(f"--nproc-per-node {count}: this machine has {found}. Give fewer.")


def _check_launcher(command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            f"--launcher {command!r}: {error}. Quote the command as a whole."
        ) from error
    if not words:
        raise UsageError("--launcher: the command is empty. Give one, such as 'srun --ntasks 8'.")
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"--launcher {command!r}: there is no program {words[0]}. Install it, or give its path."
        )


def check_launched(job: jobs.Job, outcome: TrialOutcome) -> None:
    """Check that the launcher of a job, if it has one, has started its processes.

    Raises:
        UsageError: it has not.
    """
    if job.launch and isinstance(outcome, Lost):
        raise UsageError(f"--launcher {shlex.join(job.launch)!r}: {outcome.detail}")


def check_held(options: SearchOptions) -> None:
    """Check that the processes can share an effective batch, as far as their number is known.

    Raises:
        UsageError: they cannot share it evenly.
    """
    held, processes = options.workload.effective_batch, options.resources.processes
    if type(held) is int and processes and held % processes:
        raise UsageError(
            f"--effective-batch {held}: {processes} processes cannot share it evenly. Give a "
            f"multiple of {processes}."
        )


def held_by_each(options: SearchOptions, baseline: TrainingConfig) -> int | None:
    """Return the samples of a step that each process keeps to; None if they may vary.

    A number that the user gave is of all processes together.

    Raises:
        UsageError: the processes cannot share that number evenly.
    """
    workload, processes = options.workload, options.resources.processes
    held = workload.held_batch(baseline)
    if held is None or type(workload.effective_batch) is not int:
        return held
    check_held(options)
    return held // processes


def is_of_all(task: jobs.Task, config: TrainingConfig) -> bool:
    """Return whether all processes of a trial carry out a task together, not only one."""
    if isinstance(task, jobs.Gate):
        return config["ddp_comm_dtype"] is not None
    return isinstance(task, _OF_ALL)


def _without_ranks(file: SpaceFile) -> tuple[SpaceFile, tuple[str, ...]]:
    """Return a space without the knobs of several processes, and a note on those that it had.

    A portable space has them for other machines; otherwise a note names them.
    """
    lost = [name for name in file.offers if knob_named(name).of_ranks]
    if not lost:
        return file, ()
    offers = {name: values for name, values in file.offers.items() if name not in lost}
    notes = () if file.portable else (f"{', '.join(lost)}: left out, {ALONE}",)
    return replace(file, offers=offers), notes


def space_of_each(
    file: SpaceFile,
    options: SearchOptions,
    machine: Machine,
    samples: int | None,
    held: int | None,
) -> tuple[SpaceFile, tuple[str, ...]]:
    """Return the space that each of several processes may use, and notes on what it lost.

    Args:
        file: the space as it was given.
        options: they say how many processes there are.
        machine: the machine that they share.
        samples: those of the training set; None if not known.
        held: samples of a step of each process; None if they may vary.
    """
    processes = options.resources.processes
    if processes == 1:
        return _without_ranks(file)
    cores = max(1, machine.host.usable_cores // processes)
    notes: list[str] = []
    if held is not None:
        notes.append(
            f"{processes} processes: a step takes {processes * held} samples, {held} in each"
        )

    def fits(most: int) -> Callable[[Value], bool]:
        return lambda value: type(value) is not int or value <= most

    share = f"each of {processes} processes has {cores} of the cores"
    rules = [
        ("num_threads", fits(cores), share),
        ("num_workers", fits(cores), share),
    ]
    if samples is not None:
        each = samples // processes
        rules.append(
            ("batch_size", fits(each), f"each of {processes} processes has {each} samples")
        )
    offers = dict(file.offers)
    for name, is_kept, why in rules:
        offered = offers.get(name, ())
        lost = [spelled(value) for value in offered if not is_kept(value)]
        notes.extend(f"{name}={value} dropped: {why}" for value in lost)
        if lost:
            offers[name] = tuple(value for value in offered if is_kept(value))
    return replace(file, offers=offers), tuple(notes)
