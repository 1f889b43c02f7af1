"""Observe an unmodified training script, and find the settings that can reach it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from autotune.calling.proposed_maps import proposals, unknown_words
from autotune.configuration.job import Job, Observe
from autotune.configuration.script import BY_FLAG_ALONE, ScriptOptions
from autotune.configuration.space_file import SpaceFile
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig
from autotune.context.options import WorkloadOptions
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob, spelled
from autotune.processes.runner import Runner
from autotune.system.trial_folder import FIRST_STEPS, TrialFolder
from autotune.values.errors import UsageError, WorkloadError
from autotune.values.outcome import Crashed, Observed, TimedOut, TrialOutcome, as_failure, describe
from autotune.values.text import span
from autotune.values.workload_facts import Surroundings

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


def with_maps(
    workload: WorkloadOptions, file: SpaceFile, observed: Observed
) -> tuple[WorkloadOptions, tuple[str, ...]]:
    """Return the options with the maps that the observed flags allow, and notes on such flags.

    Raises:
        UsageError: a map or the space names a flag that the script does not have.
    """
    script, around = workload.script, observed.surroundings
    assert script is not None
    own = {name: name.removeprefix("flags.") for name in file.own.offers if "flags." in name}
    _check_words(script, around, own, file)
    if not script.proposes:
        return workload, ()
    today, mapped = TrainingConfig.of(observed.workload.baseline), {f.knob for f in script.flags}
    knobs = [name for name in BATCH_KNOBS if name not in mapped]
    if workload.held_batch(today) is None:
        knobs = [name for name in knobs if name == "batch_size"]
    flags, notes = proposals(around, {name: today[name] for name in knobs}, script.arguments)
    flags = tuple(flag for flag in flags if flag.name not in own.values())
    if not workload.has_quality:
        return workload, tuple(
            f"this script has {flag.name}: {flag.knob} is searched if there is a --metric-regex"
            for flag in flags
        )
    taken = (
        f"this script has {flag.name}: searched as {flag.knob} (--map none leaves it)"
        for flag in flags
    )
    mapped_script = replace(script, flags=(*script.flags, *flags))
    return replace(workload, script=mapped_script), (*taken, *notes)


def _check_words(
    script: ScriptOptions, around: Surroundings, own: Mapping[str, str], file: SpaceFile
) -> None:
    """Check that the script knows each flag or key that a map or the space names.

    Raises:
        UsageError: some are unknown; all are named.
    """
    places = {w: f"--map {flag.knob}={flag.name}" for flag in script.flags for w in flag.words}
    places |= {word: file.position(name) for name, word in own.items()}
    faults = [f"{places[word]}: {fault}" for word, fault in unknown_words(around, list(places))]
    if faults:
        raise UsageError("\n".join(faults))


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
