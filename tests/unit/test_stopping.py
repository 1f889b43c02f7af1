"""A search ends when nothing has become better for a while, and not before."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.config import TrainingConfig
from autotune.constraints import Verdict
from autotune.tuning.stopping import FEWEST, PATIENCE, has_settled
from autotune.tuning.study import FinishedTrial
from tuning import CRASHED, HOLDS


def trials(values: Sequence[float], margins: dict[str, float] = HOLDS) -> list[FinishedTrial]:
    config = TrainingConfig.of({"batch_size": 8})
    return [
        FinishedTrial(number, config, Verdict(value, margins, ""), {})
        for number, value in enumerate(values)
    ]


def test_what_rises_goes_on() -> None:
    assert not has_settled(trials([1.02**number for number in range(60)]))


def test_what_has_not_risen_for_long_is_over() -> None:
    assert has_settled(trials([100.0] * FEWEST))


def test_a_start_is_no_plateau() -> None:
    assert not has_settled(trials([100.0] * (FEWEST - 1)))


def test_patience_begins_anew_with_every_gain() -> None:
    values = [100.0] * FEWEST + [110.0]
    assert not has_settled(trials([*values, *[100.0] * (PATIENCE - 1)]))
    assert has_settled(trials([*values, *[100.0] * PATIENCE]))


def test_less_than_a_percent_is_no_gain() -> None:
    assert has_settled(trials([100.0] * FEWEST + [100.9] * 3))


def test_what_is_infeasible_is_no_gain() -> None:
    crashed = trials([200.0] * 3, CRASHED)
    assert has_settled([*trials([100.0] * FEWEST), *crashed])
