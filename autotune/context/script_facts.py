"""Observe an unmodified training script, and find the settings that can reach it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from autotune.configuration.job import Job, Observe
from autotune.configuration.script import BY_FLAG_ALONE, ScriptOptions, is_harmless
from autotune.configuration.space_file import SpaceFile
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob, spelled
from autotune.knobs.own import BUILDERS, OwnKnob
from autotune.processes.runner import Runner
from autotune.system.trial_folder import FIRST_STEPS, TrialFolder
from autotune.values.errors import UsageError, WorkloadError
from autotune.values.outcome import Crashed, Observed, TimedOut, TrialOutcome, as_failure, describe
from autotune.values.text import span

_SCALED = "float16"
_MORE_TIME = "; a process may take a quarter of --time-budget, so give a longer one"


def observe(
    runner: Runner, path: Path, script: ScriptOptions, folder: Path, deadline_seconds: float
) -> Observed:
    """Run the script as it is for some steps.

    Raises:
        WorkloadError: the script fails, or trains in a way that cannot be tuned from outside.
    """
    job = Job(
        Observe(),
        device="auto",
        model_path=str(path.resolve()),
        script=script.call(),
        deadline_seconds=deadline_seconds,
    )
    outcome = runner.run(job, folder)
    if isinstance(outcome, Observed):
        return outcome
    stepped = TrialFolder(folder).phase == FIRST_STEPS
    raise WorkloadError(
        f"{path}, run as a training script: {_reason(outcome, stepped)}\n"
        "Describe the training in a model.py instead: `autotune init` writes a template.\n"
        f"Whole log: {folder / 'stderr.log'}"
    )


def _reason(outcome: TrialOutcome, stepped: bool) -> str:
    match outcome:
        case TimedOut(_, limit) if stepped:
            return f"too few steps to be timed within {span(limit)}{_MORE_TIME}"
        case Crashed(detail) if stepped:
            return f"it ended in its first steps: {detail}"
        case TimedOut(_, limit):
            return f"no step of a torch optimizer within {span(limit)}{_MORE_TIME}"
        case Crashed(detail):
            return f"it made no step of a torch optimizer: {detail}"
        case _:
            return describe(as_failure(outcome))


def check_device(observed: Observed, device: str) -> None:
    """Check that a script trains on the device that was chosen for its processes.

    Raises:
        UsageError: it chooses another one itself.
    """
    visible, kind = observed.visible_devices, observed.device.partition(":")[0]
    if device != "auto" and visible is not None:
        raise UsageError(
            f"--devices: the script sets CUDA_VISIBLE_DEVICES={visible} itself, so that all trials "
            "would share a device. Let it keep the variable as it finds it."
        )
    if device != "auto" and kind != device.partition(":")[0]:
        raise UsageError(
            f"--devices: the script trains on {observed.device}, as its own arguments say. Change "
            f"these, or name devices of that kind."
        )


def asked(script: ScriptOptions, observed: Observed) -> tuple[str, ...]:
    """Return the knobs that autotune applies itself.

    These are the reachable knobs for which the script has no flag and that it does not fix itself.
    """
    flags = {*BY_FLAG_ALONE, *(flag.knob for flag in script.flags)}
    return tuple(
        knob.name
        for knob in ALL_KNOBS
        if script.reaches(knob) and knob.name not in flags and knob.name not in observed.fixed
    )


def reachable(
    file: SpaceFile, script: ScriptOptions, observed: Observed, holds_batch: bool = False
) -> tuple[SpaceFile, tuple[str, ...]]:
    """Return the space file without knobs that cannot reach the script, and a note on each.

    `holds_batch` is True if batch_size and accumulation_steps may only change together.
    """
    obstacles = dict(_obstacles(file, script, observed))
    unmapped = [name for name in BATCH_KNOBS if not script.reaches(KNOBS[name])]
    if holds_batch and unmapped:
        for name in set(BATCH_KNOBS) & file.offers.keys():
            obstacles[name] = f"the effective batch is kept, so it needs --map {unmapped[0]}=--FLAG"
    offers = {
        name: tuple(value for value in values if value != _SCALED or name not in KNOBS)
        for name, values in file.offers.items()
        if name not in obstacles
    }
    own = TrainingConfig.of(observed.workload.baseline)
    notes = (f"{name} stays {spelled(own[name])}: {why}" for name, why in obstacles.items())
    return replace(file, offers=offers), tuple(notes)


def out_of_reach(
    config: TrainingConfig, own: TrainingConfig, script: ScriptOptions, observed: Observed
) -> Iterator[tuple[str, str]]:
    """Yield the settings other than the script's `own` that cannot be applied, with the reason."""
    names = asked(script, observed)
    for knob, value in config.items():
        is_carried = any(flag.carries(value) for flag in script.flags if flag.knob == knob.name)
        setting = f"{knob.name}={spelled(value)}"
        if isinstance(knob, OwnKnob):
            if knob.kind in BUILDERS:
                yield setting, f"it is an argument of {BUILDERS[knob.kind]} in a model.py"
        elif value == own[knob.name] or is_carried or (value is None and is_harmless(knob)):
            continue
        elif value == _SCALED:
            yield setting, f"needs the script's own scaler: --map {knob.name}:{value}=--FLAG"
        elif knob.name not in names:
            yield setting, observed.fixed.get(knob.name) or _way(knob)


def _obstacles(
    file: SpaceFile, script: ScriptOptions, observed: Observed
) -> Iterator[tuple[str, str]]:
    for knob in ALL_KNOBS:
        if knob.name not in file.offers:
            continue
        if knob.name in observed.fixed:
            yield knob.name, observed.fixed[knob.name]
        elif not script.reaches(knob):
            yield knob.name, _way(knob)


def _way(knob: Knob) -> str:
    if knob.effect == "statistics":
        return f"it changes the course of training, so it needs --map {knob.name}=--FLAG"
    if knob.name in BY_FLAG_ALONE:
        return f"only the script's own loop can follow it: --map {knob.name}=--FLAG"
    return knob.script_obstacle or "it changes the arithmetic, so it needs --allow numerics"
