"""A search of a large space begins with the values of a smaller one."""

import pytest

from autotune.configuration.search_space import read_space
from autotune.searching.run.events import TrialEnded
from autotune.searching.search import search
from autotune.values.errors import UsageError
from factories import written
from scripted_runner import ScriptedRunner, at, batch_of, events_of, trials_of, unstored_in
from search_clock import timed_runner

# Of `quick` are 16, 32, 64 and num_workers; of the whole also 24, 48, 96 and optimizer_impl.
SPACE = (
    "portable: true\nfirst: quick\nbatch_size: [16, 24, 32, 48, 64, 96]\nnum_workers: [0, 2]\n"
    "optimizer_impl: [null, fused]\n"
)


def is_first(config):
    """Return True for a configuration of the values that `quick` has, too, or the baseline's."""
    return batch_of(config) in (8, 16, 32, 64) and config["optimizer_impl"] is None


def tried(folder, runner, space=SPACE, **changes):
    events = events_of(unstored_in(folder, space, **changes), runner)
    return [trial.config for trial in trials_of(events)]


def slower_when_larger(config, phase):
    return at(100 - batch_of(config) / 10)


def test_the_first_trials_are_those_of_the_smaller_space(tmp_path):
    configs = tried(tmp_path, ScriptedRunner(measure=slower_when_larger), trials=16)
    # Of the 8 configurations of the first part, 7 are left beside the baseline: they come first.
    assert len(configs) == 16
    first, others = configs[:7], configs[8:]
    assert all(map(is_first, first))
    assert not any(map(is_first, others))


def test_the_first_part_has_as_many_seconds_as_the_smaller_space(monkeypatch, tmp_path):
    runner = timed_runner(
        monkeypatch, measure=slower_when_larger, seconds=lambda config, phase: 16.0
    )
    ended = []
    for event in search(unstored_in(tmp_path, SPACE, trials=50, time_budget_seconds=400.0), runner):
        if isinstance(event, TrialEnded):
            ended.append((runner.elapsed - 16.0, event.trial.config))
    early = [config for begun, config in ended if begun < 150]
    late = [config for begun, config in ended if begun >= 150]
    assert 1 < len(early) < 8, "the part is not exhausted"
    assert all(map(is_first, early))
    assert not all(map(is_first, late))


def test_the_first_part_has_as_many_trials_as_the_smaller_space(tmp_path):
    space = SPACE.replace("[0, 2]", "[0, 1, 2, 4, 8]")
    runner = ScriptedRunner(measure=slower_when_larger)
    configs = tried(tmp_path, runner, space, trials=14)
    assert all(map(is_first, configs[:10]))
    assert not all(map(is_first, configs[10:]))


def test_values_of_the_users_own_are_tried_from_the_first(tmp_path):
    space = SPACE.replace("optimizer_impl: [null, fused]", "env:\n  MODE: [null, a, b]")
    runner = ScriptedRunner(measure=lambda config, phase: at(200 if config["env.MODE"] else 100))
    configs = tried(tmp_path, runner, space, trials=5)
    assert any(config["env.MODE"] for config in configs)
    assert all(batch_of(config) in (8, 16, 32, 64) for config in configs)


def test_a_search_that_gains_nothing_more_widens_before_it_ends(tmp_path):
    space = (
        "portable: true\nfirst: default\ntrials: 60\nbatch_size: {low: 8, high: 1024, log2: true}\n"
        "num_workers: [0, 1, 2, 4, 8]\naccumulation_steps: [1, 2]\n"
    )

    def rate(config, phase):
        return at(150 if config["accumulation_steps"] == 2 else 100)

    counts = [
        config["accumulation_steps"]
        for config in tried(tmp_path, ScriptedRunner(measure=rate), space, trials=None)
    ]
    assert counts[:30] == [1] * 30
    assert 2 in counts[30:]
    assert len(counts) >= 50, "the whole space has had the patience of a search"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("first: quik", "mine.yaml:1:8: first must be the name of a shipped space, not 'quik'."),
        ("first: [1]", "mine.yaml:1:8: first must be the name of a shipped space, not [1]."),
    ],
)
def test_a_first_space_that_is_none_is_refused_with_its_place(line, said, tmp_path):
    with pytest.raises(UsageError) as caught:
        read_space(written(tmp_path, f"{line}\nnum_workers: [0]\n", name="mine.yaml"))
    assert str(caught.value).endswith(said)
