"""A search whose trials are several processes: who starts them, how many fit, what each may use."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace

from autotune.configuration import job as jobs
from autotune.configuration.search_space import SpaceFile
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import Resources, SearchOptions
from autotune.knobs import knob_named
from autotune.knobs.base import spelled
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
        try:
            words = shlex.split(launcher)
        except ValueError as error:
            raise UsageError(
                f"--launcher {launcher!r}: {error}. Quote the command as a whole."
            ) from error
        if not words:
            raise UsageError(
                "--launcher: the command is empty. Give one, such as 'srun --ntasks 8'."
            )
        if shutil.which(words[0]) is None:
            raise UsageError(
                f"--launcher {launcher!r}: there is no program {words[0]}. Install it, or give its "
                "path."
            )
        return
    cores, gpus = probe_host().usable_cores, len(nvidia_gpus() or ())
    is_on_gpus = gpus and device == "cuda"
    room = cores if device == "cpu" else gpus if is_on_gpus else max(cores, gpus)
    if count > room:
        found = f"{gpus} GPUs" if is_on_gpus or room > cores else f"{cores} cores"
        raise UsageError(f"--nproc-per-node {count}: this machine has {found}. Give fewer.")


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


def space_of_each(
    file: SpaceFile,
    options: SearchOptions,
    machine: Machine,
    samples: int | None,
    held: int | None,
) -> tuple[SpaceFile, tuple[str, ...]]:
    """Return the space that each process may use, and notes on what it lost.

    Several processes share the machine, and the training set's `samples`, if these are known.
    `held` are those of a step of each process; None if they may vary. One process alone does
    without the knobs of several, which a portable space has for others.
    """
    processes, offers, notes = options.resources.processes, dict(file.offers), list[str]()
    if processes == 1:
        lost = [name for name in file.offers if knob_named(name).of_ranks]
        if lost and not file.portable:
            notes.append(f"{', '.join(lost)}: left out, because {ALONE}")
        offers = {name: values for name, values in file.offers.items() if name not in lost}
        return replace(file, offers=offers), tuple(notes)
    cores = max(1, machine.host.usable_cores // processes)
    if held is not None:
        notes.append(
            f"{processes} processes: a step takes {processes * held} samples, {held} in each"
        )
    most = dict.fromkeys(("num_threads", "num_workers"), (cores, f"{cores} of the cores"))
    if samples is not None:
        each = samples // processes
        most["batch_size"] = each, f"{each} samples"
    for name, (limit, share) in most.items():
        kept = [it for it in offers.get(name, ()) if type(it) is not int or it <= limit]
        dropped = [it for it in offers.get(name, ()) if it not in kept]
        why = f"each of {processes} processes has {share}"
        notes += [f"{name}={spelled(value)} dropped: {why}" for value in dropped]
        if dropped:
            offers[name] = tuple(kept)
    return replace(file, offers=offers), tuple(notes)
