"""Rows of numbers that stand for configurations: every one has one, and they lead back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.encoding import Encoding, params_of
from factories import cpu_machine, narrowed, written

SPACE = """\
batch_size: [8, 16, 32, 64]
num_workers: [0, 1, 2, 4]
prefetch_factor: [2, 4]
amp_dtype: [null, bfloat16]
channels_last: [false, true]
num_threads: [2, 1]
"""


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    return narrowed(written(tmp_path, SPACE), cpu_machine(), {"batch_size": 8})


def test_a_knob_that_means_nothing_has_a_value_of_its_own(space: SearchSpace) -> None:
    code = Encoding(space)
    idle, busy = (
        space.within(TrainingConfig.of({})),
        space.within(TrainingConfig.of({"num_workers": 2})),
    )
    rows = code.rows([idle, busy])
    column = list(code.values).index("prefetch_factor")
    assert rows[0, column] != rows[1, column]
    assert params_of(idle, space.varied())["prefetch_factor"] in space.domains["prefetch_factor"]


@pytest.mark.parametrize(("paying", "ratios"), [(1, (1.0, 1.0, 1.0)), (2, (0.7, 1.0, 1.0))])
def test_threads_are_expected_to_gain_as_far_as_the_diagnosis_says(
    tmp_path: Path, paying: int, ratios: tuple[float, ...]
) -> None:
    """Half of two threads have 0.7 of the rate; those of more than the cores gain nothing."""
    space = narrowed(written(tmp_path, "num_threads: [1, 2, 4]\n"), cpu_machine(4), {})
    code = Encoding(replace(space, paying_threads=paying))
    configs = [TrainingConfig.of({"num_threads": count}) for count in (1, 2, 4)]
    rates = np.exp(code.expected(code.rows(configs)))
    assert rates / rates[1] == pytest.approx(ratios)


def test_every_row_is_every_configuration(space: SearchSpace) -> None:
    code = Encoding(space)
    assert {code.config(row) for row in code.every_row} == set(space.configurations())
    assert len(code.every_row) == space.size


def test_drawn_rows_and_neighbours_are_configurations(space: SearchSpace) -> None:
    code, whole = Encoding(space), set(space.configurations())
    drawn = code.some_rows(50, Random(0))
    assert {code.config(row) for row in drawn} <= whole
    own = code.config(drawn[0])
    assert {code.config(row) for row in code.neighbours(drawn[0])} - {own} == set(
        space.neighbours(own)
    )


def test_a_neighbour_with_workers_has_a_prefetch_factor_of_the_space(tmp_path: Path) -> None:
    text = SPACE.replace("prefetch_factor: [2, 4]", "prefetch_factor: [4, 8]")
    space = narrowed(written(tmp_path, text), cpu_machine(), {"batch_size": 8})
    code = Encoding(space)
    (row,) = code.rows([space.within(TrainingConfig.of({"num_workers": 0}))])
    near = [code.config(neighbour) for neighbour in code.neighbours(row)]
    assert {config["prefetch_factor"] for config in near if config["num_workers"]} == {4}
    assert set(near) <= set(space.configurations())


def test_rows_of_configurations_lead_back_to_them(space: SearchSpace) -> None:
    code, configs = Encoding(space), list(space.configurations())
    assert [code.config(row) for row in code.rows(configs)] == configs
