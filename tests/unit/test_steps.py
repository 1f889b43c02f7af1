"""Uphill by one setting at a time: which configurations are one step on from another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autotune.config import TrainingConfig
from autotune.knobs.base import Value
from autotune.space import SearchSpace
from autotune.tuning.steps import following, steps


@pytest.mark.parametrize(
    ("values", "current", "expected"),
    [
        ((16, 32, 64), 16, [32]),
        ((16, 32, 64), 64, []),
        ((16, 32, 64, 48), 48, [64]),
        ((2, 1), 2, [1]),
        ((2, 1), 1, [2]),
        ((None, "bfloat16", "float16"), None, ["bfloat16"]),
        (("bfloat16", None), "bfloat16", [None]),
        ((False, True), False, [True]),
        ((False, True), True, []),
        ((2, 4), None, []),
    ],
)
def test_a_value_is_followed_by_the_next_larger_one_or_the_next_in_line(
    values: Sequence[Value], current: Value, expected: list[Value]
) -> None:
    assert list(following(values, current)) == expected


def space_of(**domains: tuple[Value, ...]) -> SearchSpace:
    default = TrainingConfig.of({"batch_size": 8}).as_dict()
    return SearchSpace({name: domains.get(name, (value,)) for name, value in default.items()})


def test_every_knob_with_a_choice_takes_one_step_in_the_order_of_what_pays_most() -> None:
    space = space_of(
        batch_size=(8, 16, 32), num_threads=(2, 1), channels_last=(False, True), num_workers=(0, 1)
    )
    best = TrainingConfig.of({"batch_size": 8, "num_threads": 2})
    knobs = [set(step.differences(best)) - {"prefetch_factor"} for step in steps(space, best)]
    assert knobs == [{"num_workers"}, {"batch_size"}, {"channels_last"}, {"num_threads"}]


def test_a_step_has_the_frozen_knobs_values() -> None:
    space = space_of(num_workers=(0, 2), persistent_workers=(True,), prefetch_factor=(4,))
    (step,) = steps(space, TrainingConfig.of({"batch_size": 8}))
    assert (step["persistent_workers"], step["prefetch_factor"]) == (True, 4)


def test_at_the_end_of_every_knob_no_step_is_left() -> None:
    space = space_of(batch_size=(8, 16), amp_dtype=(None, "bfloat16"))
    assert not list(steps(space, TrainingConfig.of({"batch_size": 16, "amp_dtype": "bfloat16"})))
