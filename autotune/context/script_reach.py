"""Find the settings that can reach an unmodified training script, and say why others cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotune.calling.flag import Flag
from autotune.configuration.script import BY_FLAG_ALONE, ScriptOptions, is_harmless
from autotune.configuration.space_file import SpaceFile
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig
from autotune.context.options import SearchOptions
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob, spelled
from autotune.knobs.own import BUILDERS, OwnKnob
from autotune.values.outcome import Observed
from autotune.values.text import by_reason

_SCALED = "float16"
_NEEDS_METRIC = "the training loss cannot judge that, so it needs --metric-regex"


def asked(script: ScriptOptions, observed: Observed, config: TrainingConfig) -> tuple[str, ...]:
    """Return the knobs that autotune applies itself.

    These are the reachable knobs that the script does not fix itself, and for which it has no flag.
    A switch for another value, such as --fp16 for bfloat16, is none.
    """
    flags = {*BY_FLAG_ALONE, *(flag.knob for flag in script.flags if _is_set_by(flag, config))}
    return tuple(
        knob.name
        for knob in ALL_KNOBS
        if script.reaches(knob) and knob.name not in flags and knob.name not in observed.fixed
    )


def _is_set_by(flag: Flag, config: TrainingConfig) -> bool:
    """Return True if the flag, or its absence, sets the knob."""
    value = config[flag.knob]
    return flag.only is None or value is None or flag.carries(value)


def reachable(
    file: SpaceFile, options: SearchOptions, observed: Observed, holds_batch: bool = False
) -> tuple[SpaceFile, tuple[str, ...]]:
    """Return the space file without knobs that cannot reach the script, and a note on each.

    `holds_batch` is True if batch_size and accumulation_steps may only change together.
    """
    script = options.workload.script
    assert script is not None
    obstacles = dict(_obstacles(file, script, observed))
    named = {flag.knob for flag in (*script.flags, *script.proposed)}
    unmapped = [name for name in BATCH_KNOBS if name not in named]
    if holds_batch and unmapped:
        for name in set(BATCH_KNOBS) & file.offers.keys():
            obstacles[name] = f"the effective batch is kept, so it needs --map {unmapped[0]}=--FLAG"
    offers = {
        name: tuple(value for value in values if value != _SCALED or name not in KNOBS)
        for name, values in file.offers.items()
        if name not in obstacles
    }
    own = TrainingConfig.of(observed.workload.baseline)
    is_alone = options.resources.processes == 1
    told = {
        name: why
        for name, why in obstacles.items()
        if not (is_alone and name in KNOBS and KNOBS[name].of_ranks)
    }
    return replace(file, offers=offers), (*_taken(script, obstacles), *_kept(told, own))


def _taken(script: ScriptOptions, obstacles: Mapping[str, str]) -> Iterator[str]:
    """Yield a note on each flag that is searched although no `--map` names it."""
    for flag in script.proposed:
        if flag in script.flags and flag.knob not in (*script.refused, *obstacles):
            yield f"this script has {flag.name}: searched as {flag.knob} (--map none leaves it)"


def _kept(obstacles: Mapping[str, str], own: TrainingConfig) -> Iterator[str]:
    """Yield a note for each reason for which settings stay as they are."""
    for why, names in by_reason(obstacles).items():
        if len(names) > 1:
            yield f"{', '.join(names)} stay as they are; {why.replace('it ', 'each ', 1)}"
        else:
            value = spelled(own[names[0]]) if names[0] in KNOBS else "as it is"
            yield f"{names[0]} stays {value}: {why}"


def out_of_reach(
    config: TrainingConfig, own: TrainingConfig, script: ScriptOptions, observed: Observed
) -> Iterator[tuple[str, str]]:
    """Yield the settings other than the script's `own` that cannot be applied, with the reason."""
    names = asked(script, observed, config)
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
            yield setting, observed.fixed.get(knob.name) or _way(knob, script, observed)


def _obstacles(
    file: SpaceFile, script: ScriptOptions, observed: Observed
) -> Iterator[tuple[str, str]]:
    for knob in ALL_KNOBS:
        if knob.name not in file.offers:
            continue
        if knob.name in observed.fixed:
            yield knob.name, observed.fixed[knob.name]
        elif not script.reaches(knob):
            yield knob.name, _way(knob, script, observed)
    for name, effect in file.own.effects.items():
        if effect == "statistics" and script.loss is not None:
            yield name, f"it changes the course of training: {_NEEDS_METRIC}"
        elif effect != "exact" and not script.tries_numerics:
            yield name, f"it may change the trained model: {_unjudged(script)}"


def _way(knob: Knob, script: ScriptOptions, observed: Observed) -> str:
    if knob.name in script.refused:
        return script.refusal
    if knob.name in {flag.knob for flag in script.flags}:
        return f"it changes the course of training: {_unjudged(script)}"
    if seen := next((flag for flag in script.proposed if flag.knob == knob.name), None):
        return f"this script has {seen.name} for it, but it changes training: {_unjudged(script)}"
    if knob.effect == "statistics" and not knob.of_ranks:
        needed = f"it changes the course of training, so it needs --map {knob.name}=--FLAG"
        if knob.name == "batch_size" and not observed.training_loader:
            return f"{needed}, whose number is the first dimension of what the model is given"
        return needed
    if knob.name in BY_FLAG_ALONE:
        return f"only the script's own loop can follow it: --map {knob.name}=--FLAG"
    return knob.script_obstacle or f"it changes the arithmetic: {_unjudged(script)}"


def _unjudged(script: ScriptOptions) -> str:
    return "--only exact leaves it out" if script.only_exact else _NEEDS_METRIC
