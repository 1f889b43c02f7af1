"""KNOBS of a model.py: what is wrong with them, what the inspection says of them, what applies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Integers, Knob, OneOf, Setup, Value
from autotune.training.apply_settings import Settings
from autotune.training.coded_knobs import describe_knobs, effect_of, knob_faults
from autotune.values.errors import UsageError, WorkloadError
from autotune.values.machine import Machine
from autotune.values.workload_facts import WorkloadFacts
from factories import IMAGE_FACTS, cpu_machine

MODEL = Path("model.py")
HERE = Path(__file__)


class Pool(Knob):
    """A knob as a user writes it."""

    name = "pool"
    summary = "Buffers that are kept."
    values = OneOf((1, 4, 16))
    default = 1

    def loader_kwargs(self, value: Value) -> dict[str, Any]:
        return {} if value == 1 else {"prefetch_factor": value}

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        return "needs a larger machine" if value == 16 else None

    def read_back(self, setup: Setup) -> Value:
        return setup.loader.prefetch_factor


def variant(**changes: object) -> Knob:
    """A knob that differs from Pool in these attributes; `...` takes one away."""
    kept = {name: value for name, value in vars(Pool).items() if name[:2] != "__"}
    body = {name: value for name, value in {**kept, **changes}.items() if value is not ...}
    return type("Pool", (Knob,), body)()  # type: ignore[no-any-return]


def fault_of(*knobs: object) -> list[str]:
    return [fault.partition(": ")[2] for fault in knob_faults(list(knobs), MODEL)]


def raising(*_: object) -> Any:
    raise ValueError("boom")


def line_of(text: str) -> int:
    lines = HERE.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


BOOM = line_of('raise ValueError("boom")')


def test_a_sound_knob_has_no_faults() -> None:
    assert list(knob_faults([Pool()], MODEL)) == []


@pytest.mark.parametrize(
    ("knob", "said"),
    [
        (Pool, "Pool is a class; write Pool()."),
        ("pool", "'pool' is no knob; derive its class from autotune.knobs.base.Knob."),
        (variant(name=...), "Pool.name is missing."),
        (variant(values=...), "Pool.values is missing."),
        (variant(default=...), "Pool.default is missing."),
        (variant(summary=""), "summary must be a sentence, not ''."),
        (variant(name=7), "name must be text, not 7."),
        (variant(name="a-b"), "'a-b' is no name of a knob; write letters, digits and _."),
        (variant(name="batch_size"), "batch_size is a knob of autotune; choose another name."),
        (variant(name="fused_optimizer"), "fused_optimizer is a knob of autotune; choose another"),
        (variant(name="api_key"), "api_key looks like a secret (KEY), and studies, logs and"),
        (variant(values=(1, 4)), "values must be OneOf(...) or Integers(...), not (1, 4)."),
        (variant(values=OneOf(())), "values needs a tuple of 1 to 1000 options, not ()."),
        (variant(values=OneOf((1, True))), "a value stands twice; 1 and true are one value, as"),
        (variant(values=OneOf((1, [2]))), "the value [2] is not possible; expected text, a num"),
        (variant(values=OneOf((4,))), "default=1 is not possible; expected 4."),
        (variant(values=Integers(1, 9)), "suggestions(machine) is missing, which says the value"),
        (variant(values=OneOf((None, 1))), "null means the default, so that it is no other valu"),
        (variant(effect="none"), "effect must be one of exact, numerics, statistics, not 'none'."),
        (variant(read_back=...), "read_back(setup) must tell the value in force, because a trial"),
        (variant(is_readable=False), "read_back(setup) must tell the value in force, because"),
        (variant(needs="num_workers"), "needs='num_workers' is for knobs of autotune; leave it"),
        (variant(environ=raising), "environ cannot be defined by a knob in code: a variable must"),
        (variant(resolve=raising), "resolve cannot be defined by a knob in code: PyTorch's own"),
        (variant(summary=property(raising)), f"{HERE}:{BOOM}: ValueError: boom."),
    ],
)
def test_what_is_wrong_with_a_knob_is_told(knob: object, said: str) -> None:
    (fault,) = fault_of(knob)
    assert fault.startswith(f"KNOBS[0]: {said}")


def test_all_that_is_wrong_is_told_at_once_with_the_line_of_each_class() -> None:
    class Other(Pool):
        default = 3

    faults = list(knob_faults([Pool(), Other(), Pool()], MODEL))
    other = line_of("class Other(Pool):")
    assert faults == [
        f"{HERE}:{other}: KNOBS[1]: default=3 is not possible; expected 1 or 4 or 16.",
        "model.py: KNOBS has 3 knobs of the name 'pool'.",
    ]
    assert list(knob_faults({"a": 1}, MODEL)) == [
        "model.py: KNOBS must be a list of knobs, not dict."
    ]


def test_a_description_says_what_the_class_says_of_machine_and_workload() -> None:
    (told,) = describe_knobs([Pool()], MODEL, cpu_machine(), IMAGE_FACTS)
    assert (told.name, told.about, told.default) == ("knobs.pool", "Buffers that are kept.", 1)
    assert (told.suggested, told.options) == ((1, 4), (1, 4, 16))
    assert told.obstacles == ("", "", "needs a larger machine")
    small = variant(irrelevance=lambda self, facts: "no images" if facts else None)
    (told,) = describe_knobs([small], MODEL, cpu_machine(), IMAGE_FACTS)
    assert told.irrelevance == "no images"


def test_a_range_has_bounds_and_the_values_to_try() -> None:
    ranged = variant(values=Integers(1, 64), suggestions=lambda self, machine: (1, 8))
    (told,) = describe_knobs([ranged], MODEL, cpu_machine(), IMAGE_FACTS)
    assert (told.bounds, told.suggested, told.options) == ((1, 64), (1, 8), ())


def test_the_effect_is_that_of_rounding_where_the_class_says_none() -> None:
    assert effect_of(Pool()) == "numerics"
    assert effect_of(variant(effect="exact")) == "exact"
    assert effect_of(type("Child", (type(variant(effect="exact")),), {})()) == "exact"


def test_hooks_that_raise_and_suggestions_that_cannot_be_are_told_at_once() -> None:
    knobs = [
        variant(obstacle=raising),
        variant(name="b", suggestions=lambda self, machine: (1, 5, 5)),
        variant(name="c", irrelevance=raising),
        variant(name="d", obstacle=lambda self, value, machine: "never"),
    ]
    with pytest.raises(WorkloadError) as error:
        describe_knobs(knobs, MODEL, cpu_machine(), IMAGE_FACTS)
    lines = str(error.value).splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        f"pool: {HERE}:{BOOM}: ValueError: boom.",
        "b: suggestions has 5, which is not possible; expected 1 or 4 or 16.",
        "b: suggestions has a value twice: 1, 5, 5.",
        f"c: {HERE}:{BOOM}: ValueError: boom.",
        "d: obstacle refuses the default 1: never.",
    ]


def test_settings_call_the_hooks_with_the_value_or_the_default() -> None:
    knobs = (Pool(),)
    workers = {"num_workers": 2, "prefetch_factor": 8}
    plain = Settings(TrainingConfig.of(workers), knobs)
    assert plain.loader_kwargs()["prefetch_factor"] == 8
    config = TrainingConfig.of({**workers, "knobs.pool": 4})
    assert Settings(config, knobs).loader_kwargs()["prefetch_factor"] == 4
    named = {name: value for name, _, value in Settings(config, knobs).items()}
    assert named == {**dict(zip(KNOBS, config.values, strict=True)), "knobs.pool": 4}


def test_settings_of_knobs_that_are_not_there_are_refused_all_at_once() -> None:
    config = TrainingConfig.of({"knobs.pool": 5, "knobs.other": "x"})
    with pytest.raises(UsageError) as error:
        Settings(config, (Pool(),))
    assert str(error.value).splitlines() == [
        "knobs.other=x: that knob is in the code of a model.py. Give its KNOBS, as in "
        "autotune.load(path, knobs=KNOBS).",
        "knobs.pool=5 is not possible; expected 1 or 4 or 16.",
    ]


def test_a_workload_without_knobs_has_none_described() -> None:
    facts: WorkloadFacts = replace(IMAGE_FACTS)
    assert describe_knobs([], MODEL, cpu_machine(), facts) == ()
