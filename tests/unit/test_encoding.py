"""Rows of numbers that stand for configurations: every one has one, and they lead back."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.encoding import Encoding
from autotune.study.parameters import params_of
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


def test_one_thread_of_two_is_expected_to_lose_where_the_diagnosis_says_that_threads_pay(
    space: SearchSpace,
) -> None:
    own, one = TrainingConfig.of({"num_threads": 2}), TrainingConfig.of({"num_threads": 1})
    for pays, ratio in ((True, 0.7), (False, 1.0)):
        code = Encoding(replace(space, threads_pay=pays))
        first, second = code.expected(code.rows([space.within(own), space.within(one)]))
        assert math.exp(second - first) == pytest.approx(ratio)


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
