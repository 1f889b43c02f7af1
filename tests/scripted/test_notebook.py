"""A search from Python: keywords are the flags, and the result shows itself."""

import re
from pathlib import Path

import optuna
import pytest

import autotune
from autotune.commands.search import search as command
from autotune.configuration.constraints import Tolerance
from autotune.notebook import result_of, values_of
from autotune.production import Best
from autotune.searching.run.events import Answered, NothingFeasible
from autotune.values.errors import UsageError
from autotune.values.outcome import Crashed
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in

MODEL = "model.py"
SHELL_ONLY = {"model", "dry_run", "as_json", "new_study", "force", "front", "quiet"}


def on_the_command_line(*words):
    params = dict(command.make_context("search", [MODEL, *words]).params)
    return {name: params[name] for name in params if name not in SHELL_ONLY - {"model"}}


def test_without_keywords_everything_is_as_on_the_command_line():
    assert values_of(MODEL, {}) == on_the_command_line()


@pytest.mark.parametrize(
    ("keywords", "flags"),
    [
        ({"trials": 5, "seed": 3}, ["--trials", "5", "--seed", "3"]),
        ({"trials": None}, []),
        ({"time_budget": 90}, ["--time-budget", "90s"]),
        (
            {"time_budget": "1.5h", "trial_timeout": 30.5},
            ["--time-budget", "1.5h", "--trial-timeout", "30.5s"],
        ),
        ({"memory_limit": 0.9}, ["--memory-limit", "90%"]),
        ({"memory_limit": "90%"}, ["--memory-limit", "90%"]),
        ({"memory_limit": 2 << 30}, ["--memory-limit", "2GiB"]),
        ({"accuracy_tolerance": 1e-5}, ["--accuracy-tolerance", "0.00001"]),
        ({"accuracy_tolerance": Tolerance(0.02, relative=True)}, ["--accuracy-tolerance", "2%"]),
        ({"baseline": {"batch_size": 8}}, ["--baseline", "batch_size=8"]),
        ({"space": Path("mine.yaml")}, ["--space", "mine.yaml"]),
        ({"out": "best.yaml"}, ["--out", "best.yaml"]),
        (
            {"maps": ["batch_size=--bs", "num_workers=--workers"]},
            ["--map", "batch_size=--bs", "--map", "num_workers=--workers"],
        ),
        ({"maps": "batch_size=--bs"}, ["--map", "batch_size=--bs"]),
        (
            {"sampler": "TPESampler", "progress": "none"},
            ["--sampler", "TPESampler", "--progress", "none"],
        ),
    ],
)
def test_a_keyword_means_what_the_flag_means(keywords, flags):
    assert values_of(MODEL, keywords) == on_the_command_line(*flags)


def test_a_sampler_may_be_any_of_optunas():
    sampler = optuna.samplers.RandomSampler(seed=1)
    assert values_of(MODEL, {"sampler": sampler})["sampler"] is sampler


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"trails": 5}, "no keyword 'trails'. Did you mean 'trials'?"),
        ({"dry_run": True}, "no keyword 'dry_run'"),
        ({"trials": 2.5}, "trials=2.5: "),
        ({"trials": True}, "trials=True: "),
        ({"trials": 0}, "trials=0: "),
        ({"time_budget": -1}, "time_budget=-1: "),
        ({"time_budget": float("nan")}, "time_budget=nan: "),
        ({"memory_limit": 1.5}, "memory_limit=1.5: "),
        ({"accuracy_tolerance": -0.1}, "accuracy_tolerance=-0.1: "),
        ({"baseline": {"batch_sise": 8}}, "Did you mean 'batch_size'?"),
        ({"sampler": object}, "sampler=<class 'object'>: "),
        ({"sampler": "TPESampel"}, "'TPESampel' is not one of 'auto'"),
        ({"out": 5}, "out=5: "),
        ({"maps": 5}, "maps=5: "),
    ],
)
def test_an_impossible_option_is_named(keywords, words):
    with pytest.raises(UsageError) as raised:
        values_of(MODEL, keywords)
    assert words in str(raised.value)


@pytest.mark.parametrize("arguments", ["--token secret", ["--epochs", 3], 3])
def test_arguments_that_are_no_list_of_strings_are_refused_unseen(arguments):
    with pytest.raises(UsageError, match="arguments: give a list of strings") as raised:
        autotune.search(MODEL, arguments=arguments)
    assert "secret" not in str(raised.value)


def test_every_keyword_is_in_the_docstring():
    words = re.findall(r"\w+", autotune.search.__doc__ or "")
    keywords = {parameter.name for parameter in command.params} - SHELL_ONLY
    assert keywords - set(words) == set()


def searched(folder, runner, **changes):
    options = options_in(folder, **changes)
    end = events_of(options, runner)[-1]
    assert isinstance(end, Answered | NothingFeasible)
    return result_of(options, end)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Twice the batch, twice the throughput; 64 crashes with a message that is markup."""

    def run(config, phase):
        if batch_of(config) == 64:
            return Crashed("<script>alert(1)</script>")
        return at(10 * batch_of(config))

    return searched(tmp_path_factory.mktemp("found"), ScriptedRunner(run))


def test_the_best_is_what_loading_the_file_gives(found):
    assert found.path is not None
    assert isinstance(found.best, Best)
    with pytest.warns(autotune.MismatchWarning):
        assert found.best.answer == autotune.load(found.path).answer
    assert found.best.config["batch_size"] == 128


def test_it_says_in_a_line_what_was_found_and_where(found):
    text = repr(found)
    assert "\n" not in text
    assert text.startswith("<SearchResult: 16.00x faster than your settings (16.00 to 16.00, ")
    assert f"{found.path}" in text


def test_a_search_without_a_feasible_trial_has_no_best_and_shows_the_reason(tmp_path):
    result = searched(tmp_path, ScriptedRunner(), min_accuracy=0.95)
    assert result.best is None
    assert result.path is None
    assert "nothing feasible: 1 x your settings" in repr(result)
