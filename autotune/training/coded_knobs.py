"""Knobs in the code of a model.py, `KNOBS = [MyKnob()]`: whether they can be used, and as data.

The parent never sees the classes. It knows the descriptions that the inspection makes here.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from autotune.knobs import own_fault
from autotune.knobs.base import AnyPlain, Effect, Integers, Knob, OneOf, spelled
from autotune.knobs.own import KNOBS_OF_CODE, coded_name
from autotune.values.errors import WorkloadError
from autotune.values.machine import Machine
from autotune.values.workload_facts import KnobFacts, WorkloadFacts

# Hooks that a knob in code cannot have, with what to do instead.
_NOT_HERE = {
    "environ": "a variable must be set before Python starts; vary it under env in a space file",
    "resolve": "PyTorch's own choice is the default; write that value",
}
_MOST_VALUES = 1000


def knobs_in(module: ModuleType) -> tuple[Knob, ...]:
    """Return the knobs that a module defines; check them with `knob_faults` before."""
    return tuple(getattr(module, KNOBS_OF_CODE, ()))


def knob_faults(knobs: object, file: Path) -> Iterator[str]:
    """Yield what is wrong with the KNOBS of a file, each with file:line of the class."""
    if not isinstance(knobs, list | tuple):
        yield f"{file}: {KNOBS_OF_CODE} must be a list of knobs, not {type(knobs).__name__}."
        return
    for number, knob in enumerate(knobs):
        for fault in with_errors(_faults_of(knob)):
            yield f"{place_of(knob, file)}: {KNOBS_OF_CODE}[{number}]: {fault}."
    names = Counter(getattr(knob, "name", None) for knob in knobs if isinstance(knob, Knob))
    for name, count in names.items():
        if isinstance(name, str) and count > 1:
            yield f"{file}: {KNOBS_OF_CODE} has {count} knobs of the name {name!r}."


def place_of(knob: object, file: Path) -> str:
    """Return file:line of a knob's class; the file alone if Python does not know the line."""
    kind = knob if isinstance(knob, type) else type(knob)
    try:
        return f"{inspect.getsourcefile(kind) or file}:{inspect.getsourcelines(kind)[1]}"
    except (TypeError, OSError):  # a class of C, or of code without a file
        return str(file)


def effect_of(knob: Knob) -> Effect:
    """Return the effect that a class says, and numerics where it says none."""
    kinds = type(knob).__mro__
    own = kinds[: kinds.index(Knob)]
    says_so = "effect" in vars(knob) or any("effect" in vars(kind) for kind in own)
    return knob.effect if says_so else "numerics"


def describe_knobs(
    knobs: Sequence[Knob], file: Path, machine: Machine, facts: WorkloadFacts
) -> tuple[KnobFacts, ...]:
    """Return the knobs of a model.py as data, by what they say of machine and workload.

    Raises:
        WorkloadError: some raise an error or suggest values that they cannot have; all are told.
    """
    described, faults = [], []
    for knob in knobs:
        try:
            told = _describe(knob, machine, facts)
            found = list(_faults_of_suggestions(knob, told))
        except Exception as error:
            found = [_raised(error)]
        else:
            described.append(told)
        faults += [f"{place_of(knob, file)}: {knob.name}: {fault}." for fault in found]
    if faults:
        raise WorkloadError("\n".join(faults))
    return tuple(described)


def _describe(knob: Knob, machine: Machine, facts: WorkloadFacts) -> KnobFacts:
    values = knob.values
    options = values.options if isinstance(values, OneOf) else ()
    bounds = (values.low, values.high) if isinstance(values, Integers) else None
    return KnobFacts(
        name=coded_name(knob.name),
        about=knob.summary,
        effect=effect_of(knob),
        default=knob.default,
        suggested=tuple(knob.suggestions(machine)),
        options=options,
        bounds=bounds,
        obstacles=tuple(knob.obstacle(value, machine) or "" for value in options),
        irrelevance=knob.irrelevance(facts) or "",
    )


def _faults_of_suggestions(knob: Knob, told: KnobFacts) -> Iterator[str]:
    for value in dict.fromkeys(told.suggested):
        if fault := knob.values.fault(value):
            yield f"suggestions has {value!r}, which is not possible; {fault}"
    if len(set(told.suggested)) < len(told.suggested):
        yield f"suggestions has a value twice: {', '.join(map(spelled, told.suggested))}"
    reason = dict(zip(told.options, told.obstacles, strict=True)).get(told.default)
    if reason:
        yield f"obstacle refuses the default {spelled(told.default)}: {reason}"


def _faults_of(knob: object) -> Iterator[str]:
    if isinstance(knob, type) and issubclass(knob, Knob):
        yield f"{knob.__name__} is a class; write {knob.__name__}()"
        return
    if not isinstance(knob, Knob):
        yield f"{knob!r} is no knob; derive its class from autotune.knobs.base.Knob"
        return
    missing = [name for name in ("name", "summary", "values", "default") if not hasattr(knob, name)]
    yield from (f"{type(knob).__name__}.{name} is missing" for name in missing)
    if "name" not in missing:
        yield from _faults_of_name(knob)
    if not {"values", "default"} & set(missing):
        yield from _faults_of_values(knob)
    if "summary" not in missing and not (isinstance(knob.summary, str) and knob.summary.strip()):
        yield f"summary must be a sentence, not {knob.summary!r}"
    if (effect := effect_of(knob)) not in get_args(Effect):
        yield f"effect must be one of {', '.join(get_args(Effect))}, not {effect!r}"
    yield from _faults_of_hooks(knob)


def _faults_of_name(knob: Knob) -> Iterator[str]:
    if not isinstance(knob.name, str):
        yield f"name must be text, not {knob.name!r}"
    elif fault := own_fault(coded_name(knob.name)):
        yield fault


def _faults_of_values(knob: Knob) -> Iterator[str]:
    values, default = knob.values, knob.default
    if isinstance(values, OneOf):
        faults = list(_faults_of_options(values.options))
        yield from faults
        if faults:
            return
    elif not isinstance(values, Integers):
        yield f"values must be OneOf(...) or Integers(...), not {values!r}"
        return
    elif type(knob).suggestions is Knob.suggestions:
        yield "suggestions(machine) is missing, which says the values of a range to try"
    if fault := values.fault(default):
        yield f"default={default!r} is not possible; {fault}"
    if default is not None and not values.fault(None):
        yield "null means the default, so that it is no other value; name that value otherwise"


def _faults_of_options(options: Any) -> Iterator[str]:
    if not isinstance(options, tuple) or not options or len(options) > _MOST_VALUES:
        yield f"values needs a tuple of 1 to {_MOST_VALUES} options, not {options!r}"
        return
    for value in options:
        if fault := AnyPlain().fault(value):
            yield f"the value {value!r} is not possible; {fault}"
    plain = [value for value in options if not AnyPlain().fault(value)]
    if len(set(plain)) < len(plain):
        yield "a value stands twice; 1 and true are one value, as are 0 and false"


def _faults_of_hooks(knob: Knob) -> Iterator[str]:
    kind = type(knob)
    if kind.read_back is Knob.read_back or not knob.is_readable:
        yield (
            "read_back(setup) must tell the value in force, because a trial whose knob did not "
            "take effect cannot win"
        )
    for name, instead in _NOT_HERE.items():
        if getattr(kind, name) is not getattr(Knob, name):
            yield f"{name} cannot be defined by a knob in code: {instead}"
    if knob.needs is not None:
        yield f"needs={knob.needs!r} is for knobs of autotune; leave it out"


def with_errors(faults: Iterator[str]) -> list[str]:
    """Return what a check of a knob yields; an error that the knob's code raises is the last."""
    found: list[str] = []
    try:
        found.extend(faults)
    except Exception as error:
        found.append(_raised(error))
    return found


def _raised(error: Exception) -> str:
    """Return an error of the knob's code with file:line of where it was raised."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    code = None if place is None else place.tb_frame.f_code
    where = "" if place is None or code is None else f"{code.co_filename}:{place.tb_lineno}: "
    return f"{where}{type(error).__name__}: {error}".rstrip(": ")
