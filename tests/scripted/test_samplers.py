"""Proposals that would repeat a measurement are replaced by the nearest that would not."""

import optuna
import pytest
from click.testing import CliRunner
from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler, GridSampler, RandomSampler
from optuna.trial import TrialState

from autotune.cli import cli
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.encoding import config_of
from autotune.sampling.samplers import SAMPLERS, NoRepeatSampler, sampler_named
from autotune.searching.run.events import Answered, TrialEnded
from autotune.values.errors import UsageError
from factories import TINY_CONV, cpu_machine, narrowed, written
from scripted_runner import ScriptedRunner, at, batch_of, changed, events_of, options_in
from study_factories import HOLDS, study_of, tell

SPACE = """\
batch_size: [8, 16, 32, 64]
num_workers: [0, 1, 2]
prefetch_factor: [2, 4]
channels_last: [false, true]
"""


@pytest.fixture
def space(tmp_path):
    return narrowed(written(tmp_path, SPACE), cpu_machine(), {"batch_size": 8})


def proposals(space, seed, is_known, count=1):
    """Return what the sampler proposes in a study that is told nothing."""
    sampler = NoRepeatSampler(RandomSampler(seed=seed), space, is_known, seed)
    study = optuna.create_study(sampler=sampler)
    distributions = {name: CategoricalDistribution(v) for name, v in space.varied().items()}
    return [config_of(study.ask(distributions).params, space) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_a_known_proposal_is_replaced_by_a_neighbour(space, seed):
    (proposed,) = proposals(space, seed, lambda _: False)
    (replaced,) = proposals(space, seed, lambda config: config == proposed)
    assert replaced in set(space.neighbours(proposed))


@pytest.mark.parametrize("seed", range(5))
def test_the_search_goes_on_behind_neighbours_that_are_all_known(space, seed):
    (proposed,) = proposals(space, seed, lambda _: False)
    known = {proposed, *space.neighbours(proposed)}
    (replaced,) = proposals(space, seed, known.__contains__)
    assert replaced not in known
    assert known & set(space.neighbours(replaced))


def test_a_proposal_stands_where_everything_is_known(space):
    assert proposals(space, 3, lambda _: True) == proposals(space, 3, lambda _: False)


def test_only_configurations_of_the_space_are_proposed(space):
    for config in proposals(space, 0, lambda config: config["num_workers"] == 0, count=20):
        settings = config.as_dict()
        assert settings["num_workers"] in (1, 2)
        assert all(value in space.domains[name] for name, value in settings.items())


def test_a_sampler_is_a_class_of_optunas_that_a_seed_makes():
    assert tuple(type(sampler_named(name, 0)).__name__ for name in SAMPLERS) == SAMPLERS


def test_an_unknown_sampler_is_refused_with_those_that_are_known():
    done = CliRunner().invoke(cli, ["search", str(TINY_CONV), "--sampler", "tpesampler"])
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert "'tpesampler' is not one of 'auto', 'BruteForceSampler'" in said


class Last(BaseSampler):
    """A sampler of somebody's own: each knob's last value."""

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, param_name, param_distribution):
        return param_distribution.choices[-1]


THREE_KNOBS = """\
batch_size: [8, 16]
num_workers: [0, 1]
num_threads: [1, 2]
"""
GRID = {"batch_size": [8, 16], "num_workers": [0, 1], "num_threads": [1, 2]}
OWN_SAMPLERS = {
    "random": lambda: RandomSampler(seed=0),
    "tpe": lambda: optuna.samplers.TPESampler(seed=0, n_startup_trials=1),
    "joint tpe": lambda: optuna.samplers.TPESampler(seed=0, n_startup_trials=1, multivariate=True),
    "grid": lambda: GridSampler({"batch_size": [8, 16, 32, 64, 128]}, seed=0),
    "brute force": lambda: optuna.samplers.BruteForceSampler(seed=0),
    "nsga2": lambda: optuna.samplers.NSGAIISampler(population_size=2, seed=0),
    "nsga3": lambda: optuna.samplers.NSGAIIISampler(population_size=2, seed=0),
    "qmc": lambda: optuna.samplers.QMCSampler(seed=0, warn_independent_sampling=False),
    "partly fixed": lambda: optuna.samplers.PartialFixedSampler(
        {"batch_size": 16}, RandomSampler(seed=0)
    ),
    "own": Last,
}


@pytest.mark.parametrize(
    "sampler",
    {**OWN_SAMPLERS, "grid": lambda: GridSampler(GRID, seed=0)}.values(),
    ids=OWN_SAMPLERS,
)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_any_sampler_goes_through_a_space_of_three_knobs(tmp_path, sampler):
    wanted = TrainingConfig.of({"batch_size": 16, "num_workers": 1, "num_threads": 2})
    options = options_in(tmp_path, THREE_KNOBS, trials=8, storage=None, warm_start=(wanted,))
    runner = ScriptedRunner(lambda config, phase: at(10 * batch_of(config)))
    events = events_of(changed(options, sampler=sampler()), runner)
    assert isinstance(events[-1], Answered)
    tried = [event.trial.config for event in events if isinstance(event, TrialEnded)]
    assert len(set(tried)) == len(tried) == 8
    assert tried[1] == wanted


class Faulty(RandomSampler):
    """Does something else in one of its methods."""

    def __init__(self, where, does):
        super().__init__(seed=0)
        setattr(self, where, does)


def raises(*_):
    raise KeyError("no such thing")


FAULTS = [
    ("before_trial", raises),
    ("infer_relative_search_space", raises),
    ("sample_relative", raises),
    ("sample_independent", raises),
    ("sample_independent", lambda *_: 3),
    ("after_trial", raises),
]
NAMED = (
    r"^the sampler Faulty failed: (KeyError: 'no such thing'|ValueError: '3' not in .*\))\. Correct"
)


@pytest.mark.parametrize(("where", "does"), FAULTS)
def test_a_sampler_that_fails_is_named_and_leaves_no_trial_running(space, where, does):
    study = study_of(space, sampler=Faulty(where, does))
    with pytest.raises(UsageError, match=NAMED):
        tell(study, 1.0, HOLDS)
    (trial,) = study._study.trials
    state = TrialState.COMPLETE if where == "after_trial" else TrialState.FAIL
    assert trial.state == state


def test_a_sampler_that_is_interrupted_leaves_no_trial_running(study):
    def interrupted(*_):
        raise KeyboardInterrupt

    study.use_sampler(Faulty("sample_relative", interrupted), seed=0)
    with pytest.raises(KeyboardInterrupt):
        study.ask()
    assert study.take_back() == 0


def test_a_search_whose_sampler_fails_continues_with_another(url, tmp_path):
    sampler = Faulty("sample_independent", raises)
    with pytest.raises(UsageError, match=NAMED):
        events_of(options_in(tmp_path, sampler=sampler), ScriptedRunner())
    study = optuna.load_study(study_name="scripted", storage=url)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.FAIL]
    events = events_of(options_in(tmp_path, sampler="RandomSampler"), ScriptedRunner())
    assert isinstance(events[-1], Answered)
