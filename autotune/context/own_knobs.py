"""The user's own knobs in a search: what they are today, and what cannot be varied here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec

from autotune.calling.flag import Flag, preset_file
from autotune.configuration.script import ScriptOptions, is_switch
from autotune.configuration.search_space import SpaceFile, read_own_knobs
from autotune.context.options import WorkloadOptions
from autotune.knobs.base import Value, spelled
from autotune.knobs.own import (
    BUILDERS,
    Kind,
    OwnKnob,
    name_to_read,
    own_knob,
    own_knobs,
    unknown_options,
)
from autotune.values.errors import UsageError
from autotune.values.outcome import WorkloadFacts
from autotune.values.strict_yaml import read

# Settings of presets that need a package.
_NEED = {"calls.transformers.training_args.TrainingArguments.use_liger_kernel": "liger_kernel"}
_FOR_SCRIPTS = (
    "is for training scripts. Make it an argument of build_model, and name it under options."
)


def check_own_knobs(
    names: Iterable[str],
    file: SpaceFile,
    workload: WorkloadOptions,
    facts: WorkloadFacts | None = None,
) -> None:
    """Check that each of the user's own knobs fits the workload, as far as it is known.

    Raises:
        UsageError: some do not; all are named.
    """
    faults = dict(unknown_options(names, facts.signatures if facts else {}))
    misfits = {name: _misfit(name, workload) for name in names}
    faults |= {name: f"{name} {fault}" for name, fault in misfits.items() if fault}
    if faults:
        lines = [f"{_position(name, file, workload)}: {fault}" for name, fault in faults.items()]
        raise UsageError("\n".join(lines))


def with_preset(file: SpaceFile, script: ScriptOptions) -> SpaceFile:
    """Return the space with the settings of the script's preset that it does not name itself."""
    if script.preset_name is None:
        return file
    document, faults = read(preset_file(script.preset_name)), list[str]()
    shipped = read_own_knobs(document, faults)
    assert not faults, faults
    lacking = (name for name, package in _NEED.items() if find_spec(package) is None)
    left = {*file.own.offers, *lacking}
    offers = {name: values for name, values in shipped.offers.items() if name not in left}
    own = replace(
        file.own,
        offers={**offers, **file.own.offers},
        effects={**{name: shipped.effects[name] for name in offers}, **file.own.effects},
    )
    return replace(file, own=own, offers={**file.offers, **offers})


def words_of(kind: Kind, names: Iterable[str]) -> dict[str, str]:
    """Return the names of one kind of the user's own knobs, by the word that each sets."""
    return {knob.word: knob.name for knob in own_knobs(names) if knob.kind == kind}


def _misfit(name: str, workload: WorkloadOptions) -> str | None:
    """Return why a knob of the user's own does not fit the kind of workload; None if it does."""
    knob, script = own_knob(name), workload.script
    if knob is None:
        return None
    if script is None:
        return _FOR_SCRIPTS if knob.kind in ("flags", "calls") else None
    if knob.kind in BUILDERS:
        return (
            f"is an argument of {BUILDERS[knob.kind]}, and {workload.model_path} is a training "
            "script. Name its flag under flags."
        )
    if mapped := [f.knob for f in script.flags if (f.call or f.name) == knob.word]:
        return f"is what --map {mapped[0]}={knob.word} sets. Keep one of the two."
    return None


def as_found(
    file: SpaceFile, workload: WorkloadOptions, facts: WorkloadFacts
) -> tuple[SpaceFile, dict[str, Value]]:
    """Return the user's own knobs as they are without a setting, and the space with null as that.

    They are the variables of this process, the flags among the script's arguments, and defaults of
    the build functions' arguments.

    Raises:
        UsageError: the build functions do not take some of the arguments; all are named.
    """
    today = {**file.own.baseline, **facts.baseline, **workload.baseline}
    names = dict.fromkeys((*file.own.offers, *today))
    check_own_knobs(names, file, workload, facts)
    found = {knob.name: _found(knob, file, workload, facts) for knob in own_knobs(file.own.offers)}
    offers = {
        name: tuple(dict.fromkeys(found.get(name) if v is None else v for v in values))
        for name, values in file.own.offers.items()
    }
    today = {**found, **file.own.baseline}
    return replace(file, offers={**file.offers, **offers}), today


def _position(name: str, file: SpaceFile, workload: WorkloadOptions) -> str:
    if name in file.own.offers:
        return file.position(name)
    return "--baseline" if name in workload.baseline else f"{workload.model_path}: BASELINE"


def _found(
    knob: OwnKnob, file: SpaceFile, workload: WorkloadOptions, facts: WorkloadFacts
) -> Value:
    if knob.kind == "env":
        return os.environ.get(name_to_read(knob.word)) or None
    if knob.kind == "calls":
        return None
    if knob.kind == "flags":
        offered, arguments = file.own.offers[knob.name], workload.called.arguments
        if is_switch(knob.word, offered):
            return knob.word in arguments
        text = Flag("", knob.word).given(arguments)
        return next((value for value in offered if spelled(value) == text), text)
    signature = facts.signatures.get(BUILDERS[knob.kind])
    return None if signature is None else signature.defaults.get(knob.word)
