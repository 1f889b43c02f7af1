"""Proposals that would repeat a measurement are replaced by the nearest that would not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.samplers import RandomSampler

from autotune.commands.search import search
from autotune.config import TrainingConfig
from autotune.space import SearchSpace
from autotune.tuning.samplers import AUTO, SAMPLERS, NoRepeatSampler, config_of
from factories import cpu_machine, narrowed, written

SPACE = """\
batch_size: [8, 16, 32, 64]
num_workers: [0, 1, 2]
prefetch_factor: [2, 4]
channels_last: [false, true]
"""


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    return narrowed(written(tmp_path, SPACE), cpu_machine(), {"batch_size": 8})


def proposals(
    space: SearchSpace, seed: int, is_known: Callable[[TrainingConfig], bool], count: int = 1
) -> list[TrainingConfig]:
    """What the sampler proposes in a study that is told nothing."""
    sampler = NoRepeatSampler(RandomSampler(seed=seed), space, is_known, seed)
    study = optuna.create_study(sampler=sampler)
    distributions = {name: CategoricalDistribution(v) for name, v in space.varied().items()}
    return [config_of(study.ask(distributions).params, space) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_a_known_proposal_is_replaced_by_a_neighbour(space: SearchSpace, seed: int) -> None:
    (proposed,) = proposals(space, seed, lambda _: False)
    (replaced,) = proposals(space, seed, lambda config: config == proposed)
    assert replaced in set(space.neighbours(proposed))


@pytest.mark.parametrize("seed", range(5))
def test_where_all_neighbours_are_known_the_search_goes_on_behind_them(
    space: SearchSpace, seed: int
) -> None:
    (proposed,) = proposals(space, seed, lambda _: False)
    known = {proposed, *space.neighbours(proposed)}
    (replaced,) = proposals(space, seed, known.__contains__)
    assert replaced not in known
    assert known & set(space.neighbours(replaced))


def test_a_proposal_stands_where_everything_is_known(space: SearchSpace) -> None:
    assert proposals(space, 3, lambda _: True) == proposals(space, 3, lambda _: False)


def test_the_same_seed_proposes_the_same(space: SearchSpace) -> None:
    seen = proposals(space, 1, lambda _: False, count=5)
    assert proposals(space, 1, seen.__contains__, 5) == proposals(space, 1, seen.__contains__, 5)


def test_only_configurations_of_the_space_are_proposed(space: SearchSpace) -> None:
    for config in proposals(space, 0, lambda config: config["num_workers"] == 0, count=20):
        settings = config.as_dict()
        assert settings["num_workers"] in (1, 2)
        assert all(value in space.domains[name] for name, value in settings.items())


def test_parameters_stand_for_a_whole_configuration(space: SearchSpace) -> None:
    config = config_of({"batch_size": 64, "num_workers": 0, "prefetch_factor": 4}, space)
    assert config["batch_size"] == 64
    assert config["prefetch_factor"] is None
    assert config["num_threads"] == 2


def test_a_sampler_proposes_the_same_for_the_same_seed(space: SearchSpace) -> None:
    distributions = {name: CategoricalDistribution(v) for name, v in space.varied().items()}
    first, second = (
        [study.ask(distributions).params for _ in range(4)]
        for study in (optuna.create_study(sampler=SAMPLERS["tpe"](5)) for _ in range(2))
    )
    assert first == second


def test_the_command_line_takes_every_sampler() -> None:
    (option,) = [one for one in search.params if one.name == "sampler"]
    assert list(option.type.choices) == [AUTO, *SAMPLERS]
