"""Proposals that would repeat a measurement are replaced by the nearest that would not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler

from autotune.commands.search import search
from autotune.config import TrainingConfig
from autotune.space import SearchSpace
from autotune.tuning.events import Answered
from autotune.tuning.sampling.samplers import (
    AUTO,
    SAMPLERS,
    NoRepeatSampler,
    config_of,
    sampler_named,
)
from factories import cpu_machine, narrowed, written
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in

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


def test_tpe_takes_account_of_what_others_run(space: SearchSpace) -> None:
    distributions = {name: CategoricalDistribution(v) for name, v in space.varied().items()}
    study = optuna.create_study(sampler=RandomSampler(seed=0))
    for value in range(12):
        study.tell(study.ask(distributions), value)
    proposed = []
    for _ in range(6):  # as many processes of one seed, each of which has just begun
        study.sampler = sampler_named("tpe", 5)
        proposed.append(str(study.ask(distributions).params))
    assert len(set(proposed)) > 1


def test_the_command_line_takes_every_sampler() -> None:
    (option,) = [one for one in search.params if one.name == "sampler"]
    assert list(option.type.choices) == [AUTO, *SAMPLERS]


class Last(BaseSampler):
    """A sampler of somebody's own: each knob's last value."""

    def infer_relative_search_space(self, study, trial):  # type: ignore[no-untyped-def]
        return {}

    def sample_relative(self, study, trial, search_space):  # type: ignore[no-untyped-def]
        return {}

    def sample_independent(self, study, trial, param_name, param_distribution):  # type: ignore[no-untyped-def]
        return param_distribution.choices[-1]


OWN_SAMPLERS = {
    "random": lambda: RandomSampler(seed=0),
    "tpe": lambda: optuna.samplers.TPESampler(seed=0, n_startup_trials=1),
    "grid": lambda: optuna.samplers.GridSampler({"batch_size": [8, 16, 32, 64, 128]}, seed=0),
    "brute force": lambda: optuna.samplers.BruteForceSampler(seed=0),
    "nsga3": lambda: optuna.samplers.NSGAIIISampler(seed=0),
    "partly fixed": lambda: optuna.samplers.PartialFixedSampler(
        {"batch_size": 64}, RandomSampler(seed=0)
    ),
    "own": Last,
}


@pytest.mark.parametrize("sampler", OWN_SAMPLERS.values(), ids=OWN_SAMPLERS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_any_sampler_goes_through_a_whole_space_without_repeating_itself(
    tmp_path: Path, sampler: Callable[[], BaseSampler]
) -> None:
    runner = ScriptedRunner(lambda config, phase: at(800 / batch_of(config)))
    events = events_of(options_in(tmp_path, sampler=sampler(), storage=None), runner)
    assert isinstance(events[-1], Answered)
    assert sorted(runner.batches("trial")) == [16, 32, 64, 128]
    if sampler is Last:
        assert runner.batches("trial")[0] == 128
