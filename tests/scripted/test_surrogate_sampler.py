"""Samplers: the surrogate's proposals, and any class of Optuna's."""

import math
from dataclasses import replace

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler, GridSampler, RandomSampler
from optuna.trial import TrialState

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling import samplers
from autotune.sampling.acquisition import MemoryModel
from autotune.sampling.encoding import Encoding, config_of
from autotune.sampling.samplers import (
    EXPLORE_EVERY,
    SAMPLERS,
    NoRepeatSampler,
    alike,
    sampler_named,
)
from autotune.searching.run.events import Answered
from autotune.values.errors import UsageError
from factories import cpu_machine, cuda_machine, narrowed, written
from scripted_runner import ScriptedRunner, at, batch_of, changed, events_of, options_in, trials_of
from study_factories import CRASHED, HOLDS, OOM, add, finish, study_of, tell

SPACE = """\
batch_size: [8, 16, 32, 64]
num_workers: [0, 1, 2, 4]
prefetch_factor: [2, 4]
amp_dtype: [null, bfloat16]
channels_last: [false, true]
num_threads: [2, 1]
"""
SMALL = {**HOLDS, "memory": -0.99}


@pytest.fixture
def space(tmp_path):
    return narrowed(written(tmp_path, SPACE), cpu_machine(), {"batch_size": 8})


def searched(space, law, trials, seed=0, cost=alike):
    """Return what is proposed where `law` gives each trial's rate; None is a crash."""
    study = study_of(space)
    study.use_sampler("auto", seed, cost)
    proposed = []
    for _ in range(trials):
        number, config = study.ask()
        rate = law(config)
        finish(study, number, rate, SMALL if rate else CRASHED)
        proposed.append(config)
    return proposed


def additive(config):
    """Large batches, one worker and bfloat16 pay; more threads do not."""
    gains = {8: 1.0, 16: 1.4, 32: 1.8, 64: 1.6}
    workers = {0: 1.0, 1: 1.5, 2: 1.2, 4: 0.8}
    half = 1.3 if config["amp_dtype"] else 1.0
    return (
        100
        * gains[int(config["batch_size"] or 0)]
        * workers[int(config["num_workers"] or 0)]
        * half
    )


def test_the_best_of_effects_that_add_up_is_found_in_few_trials(space):
    best = max(map(additive, space.configurations()))
    for seed in range(3):
        found = max(map(additive, searched(space, additive, 14, seed)))
        assert found >= 0.95 * best


@pytest.mark.parametrize("pays", [True, False])
def test_what_the_diagnosis_tells_of_batches_decides_which_come_first(space, pays):
    rates = {size: float(size or 1) if pays else 8.0 for size in space.domains["batch_size"]}
    told = replace(space, batch_rates=rates)
    sizes = [int(config["batch_size"] or 1) for config in searched(told, lambda _: 1.0, 3)]
    assert (max(sizes) >= 32) is pays


ON_A_GPU = """\
batch_size: [16, 32, 64, 128, 256, 512]
num_workers: [0, 1, 2, 4]
amp_dtype: [null, bfloat16]
channels_last: [false, true]
"""


@pytest.mark.parametrize("seed", range(3))
def test_faster_kernels_come_with_larger_batches_where_launching_bounds_a_step(tmp_path, seed):
    """A step of 64 samples is launched in 24 ms and takes its kernels 32.

    In bfloat16 they take 27, and 11 with the channels last.
    """
    own = {"batch_size": 64}
    launch, kernels, half, half_last = 0.024, 0.032 / 64, 0.027 / 64, 0.011 / 64
    space = narrowed(written(tmp_path, ON_A_GPU), cpu_machine(), own)
    sizes = [int(size or 1) for size in space.domains["batch_size"]]
    rates = {size: size / max(launch, kernels * size) for size in sizes}

    def law(config):
        in_half = half_last if config["channels_last"] else half
        each = in_half if config["amp_dtype"] else kernels
        size = int(config["batch_size"] or 1)
        return size / max(launch, each * size)

    def best_of(told, trials):
        return max(map(law, searched(told, law, trials, seed)))

    told = replace(space, batch_rates=rates, launch_seconds=launch)
    assert best_of(told, 3) >= 2 * law(TrainingConfig.of(own))


def test_channels_last_is_expected_to_gain_in_half_precision_alone_on_a_gpu(tmp_path):
    text = "amp_dtype: [null, bfloat16]\nchannels_last: [false, true]\n"
    space = narrowed(written(tmp_path, text), cuda_machine(), {"batch_size": 8})

    def gains(space):
        encoding = Encoding(space)
        configs = [
            TrainingConfig.of({"batch_size": 8, "amp_dtype": dtype, "channels_last": last})
            for dtype in (None, "bfloat16")
            for last in (False, True)
        ]
        full, full_last, half, half_last = encoding.expected(encoding.rows(configs))
        return full_last - full, half_last - half

    assert gains(space) == (pytest.approx(0.05), pytest.approx(0.05)), "nothing shows a GPU"
    in_full, in_half = gains(replace(space, launch_seconds=1e-6))
    assert in_full == 0
    assert in_half > 0.05


def test_cuda_graphs_need_no_launches(tmp_path):
    text = "batch_size: [8, 16]\ncompile_mode: [null, default, reduce-overhead]\n"
    space = narrowed(written(tmp_path, text), cuda_machine(), {"batch_size": 8})
    told = replace(space, batch_rates={8: 80.0, 16: 160.0}, launch_seconds=0.2)
    encoding = Encoding(told)
    modes = [
        {"batch_size": 8, "compile_mode": mode} for mode in (None, "default", "reduce-overhead")
    ]
    plain, compiled, graphs = encoding.expected(
        encoding.rows([TrainingConfig.of(mode) for mode in modes])
    )
    assert graphs - compiled == pytest.approx(math.log(2)), "computing takes half as long"
    assert compiled - plain == pytest.approx(0.1), "the prior of compiling"


def test_configurations_that_cost_much_come_later(space):
    def dear(configs):
        return [1.0 if config["batch_size"] == 8 else 1000.0 for config in configs]

    def cheap(cost):
        proposed = enumerate(searched(space, additive, 7, cost=cost))
        return [number for number, config in proposed if config["batch_size"] == 8]

    assert cheap(dear) == [1, 3, 5], "every other one, while nothing else is known"
    assert not {1, 2} & set(cheap(alike))


MEMORY = """\
batch_size: [4, 8, 16, 32, 64]
num_workers: [0, 1]
amp_dtype: [null, bfloat16]
num_threads: [2, 1]
activation_checkpointing: [false, true]
"""


def short_of_memory(config):
    """The rate, and the peak over its limit, which half of the configurations exceed."""
    batch, kept = int(config["batch_size"] or 1), bool(config["activation_checkpointing"])
    peak = (0.1 + 0.1 * batch * (0.35 if kept else 1.0)) * (0.7 if config["amp_dtype"] else 1.0)
    return batch**0.8 * (0.8 if kept else 1.0), peak


def test_peaks_tell_what_fits_before_it_is_tried(tmp_path):
    narrow_space = narrowed(written(tmp_path, MEMORY), cpu_machine(), {"batch_size": 4})
    told = replace(narrow_space, batch_rates={b: b**0.8 for b in (4, 8, 16, 32, 64)})
    for seed in range(3):
        study = study_of(told)
        study.use_sampler("auto", seed)
        add(
            study, told.within(TrainingConfig.of({"batch_size": 4})), 3.0, {**HOLDS, "memory": -0.5}
        )
        ran_out, best = 0, 0.0
        for _ in range(10):
            number, config = study.ask()
            rate, peak = short_of_memory(config)
            fits = peak <= 1
            ran_out += not fits
            best = max(best, rate if fits else 0.0)
            margins = {**HOLDS, "memory": peak - 1} if fits else OOM
            finish(study, number, rate if fits else None, margins)
        every = map(short_of_memory, told.configurations())
        assert best == max(rate for rate, peak in every if peak <= 1)
        assert ran_out <= 5, "half of the configurations do not fit"


def test_a_device_on_which_nothing_was_allocated_tells_nothing_of_what_fits(tmp_path, monkeypatch):
    def proposed(memory):
        study = study_of(narrowed(written(tmp_path, MEMORY), cpu_machine(), {"batch_size": 4}))
        study.use_sampler("auto", 0)
        found = []
        for _ in range(4):
            number, config = study.ask()
            finish(study, number, 3.0, {**HOLDS, "memory": memory})
            found.append(config)
        return found

    unused, tight = proposed(-1.0), proposed(-0.01)
    monkeypatch.setattr(MemoryModel, "fits", lambda _, rows: np.ones(len(rows)))
    assert proposed(-1.0) == unused
    assert proposed(-0.01) != tight, "a peak does tell"


def test_a_crash_is_not_walked_into_again_and_again(space):
    def law(config):
        return None if config["amp_dtype"] else additive(config)

    crashed = [config for config in searched(space, law, 20) if config["amp_dtype"]]
    assert 1 <= len(crashed) <= 7


def test_two_settings_that_pay_only_together_are_found(space):
    def law(config):
        half, last = bool(config["amp_dtype"]), bool(config["channels_last"])
        return 100 * (1.6 if half and last else 0.85 if half or last else 1.0)

    for seed in range(3):
        assert max(map(law, searched(space, law, 12, seed))) == pytest.approx(160)


def test_the_best_is_tried_with_hardly_tried_values_when_nothing_gains(space, monkeypatch):
    def law(config):
        return 50.0 if config["num_threads"] == 1 else additive(config) / 2

    def explored(proposed):
        """In how many settings what explores differs from the best by then."""
        numbers = range(24, 40, EXPLORE_EVERY)
        bests = (max(proposed[:number], key=law) for number in numbers)
        changed = (proposed[n].differences(best) for n, best in zip(numbers, bests, strict=True))
        return [len(names.keys() - {"prefetch_factor"}) for names in changed]

    assert max(explored(searched(space, law, 40))) == 1
    monkeypatch.setattr(samplers, "_PATIENCE", 1000)
    assert max(explored(searched(space, law, 40))) > 1


def test_a_proposal_is_a_configuration_even_if_all_are_known(space):
    small = SearchSpace({n: v[:1] if n != "batch_size" else v for n, v in space.domains.items()})
    proposed = searched(small, additive, 6)
    assert set(proposed[:4]) == set(small.configurations())
    assert set(proposed[4:]) <= set(small.configurations())


def test_in_a_large_space_the_way_leads_uphill(space, monkeypatch):
    monkeypatch.setattr(samplers, "_MOST_ENUMERATED", 0)
    monkeypatch.setattr(samplers, "_SAMPLED", 5)
    best = max(map(additive, space.configurations()))
    assert max(map(additive, searched(space, additive, 20))) >= 0.95 * best


THREE = """\
batch_size: [8, 16, 32, 64]
num_workers: [0, 1, 2]
prefetch_factor: [2, 4]
channels_last: [false, true]
"""


@pytest.fixture
def three(tmp_path):
    return narrowed(written(tmp_path, THREE), cpu_machine(), {"batch_size": 8})


def proposals(three, seed, is_known, count=1):
    """Return what the sampler proposes in a study that is told nothing."""
    sampler = NoRepeatSampler(RandomSampler(seed=seed), three, is_known, seed)
    study = optuna.create_study(sampler=sampler)
    distributions = {name: CategoricalDistribution(v) for name, v in three.varied().items()}
    return [config_of(study.ask(distributions).params, three) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_a_known_proposal_is_replaced_by_a_neighbour(three, seed):
    (proposed,) = proposals(three, seed, lambda _: False)
    (replaced,) = proposals(three, seed, lambda config: config == proposed)
    assert replaced in set(three.neighbours(proposed))


@pytest.mark.parametrize("seed", range(5))
def test_the_search_goes_on_behind_neighbours_that_are_all_known(three, seed):
    (proposed,) = proposals(three, seed, lambda _: False)
    known = {proposed, *three.neighbours(proposed)}
    (replaced,) = proposals(three, seed, known.__contains__)
    assert replaced not in known
    assert known & set(three.neighbours(replaced))


def test_a_proposal_stands_where_everything_is_known(three):
    assert proposals(three, 3, lambda _: True) == proposals(three, 3, lambda _: False)


def test_only_configurations_of_the_space_are_proposed(three):
    for config in proposals(three, 0, lambda config: config["num_workers"] == 0, count=20):
        settings = config.as_dict()
        assert settings["num_workers"] in (1, 2)
        assert all(value in three.domains[name] for name, value in settings.items())


def test_a_sampler_is_a_class_of_optunas_that_a_seed_makes():
    assert tuple(type(sampler_named(name, 0)).__name__ for name in SAMPLERS) == SAMPLERS


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
    tried = [trial.config for trial in trials_of(events)]
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
def test_a_sampler_that_fails_is_named_and_leaves_no_trial_running(three, where, does):
    study = study_of(three, sampler=Faulty(where, does))
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
