"""Which trials a search makes, and in what order, before its sampler knows anything."""

import math

from autotune.tuning.events import TrialEnded
from scripted_runner import ScriptedRunner, at, events_of, options_in

SPACE = """\
batch_size: [8, 16, 32]
num_workers: [0, 1, 2]
amp_dtype: [null, bfloat16]
channels_last: [false, true]
num_threads: [2, 1]
"""
FACTORS = {"num_workers": {1: 1.5, 2: 1.2}, "amp_dtype": {"bfloat16": 0.5}, "batch_size": {16: 1.2}}


def product(config, phase):
    """Each setting makes training so many times faster."""
    return at(100 * math.prod(FACTORS[name].get(config[name], 1.0) for name in FACTORS))


def trials_of(folder, **changes):
    folder.mkdir(exist_ok=True)
    events = events_of(options_in(folder, SPACE, **changes), ScriptedRunner(product))
    return [event.trial for event in events if isinstance(event, TrialEnded)]


def test_what_pays_is_kept_and_the_next_step_starts_from_there(tmp_path):
    first, *steps = trials_of(tmp_path, trials=4)
    changed = [step.config.differences(first.config) for step in steps]
    assert [c["num_workers"] for c in changed] == [1, 2, 1]
    assert changed[2]["amp_dtype"] == "bfloat16", "two workers did not pay"


def test_eight_trials_are_enough_for_a_combination(tmp_path):
    best = max(trials_of(tmp_path, trials=8), key=lambda trial: trial.verdict.value)
    assert (best.config["num_workers"], best.config["batch_size"]) == (1, 16)


def test_every_fourth_trial_is_the_samplers(tmp_path):
    runs = [trials_of(tmp_path / str(seed), trials=5, seed=seed) for seed in (1, 2, 3)]
    assert [trial.config for trial in runs[0][:4]] == [trial.config for trial in runs[1][:4]]
    assert len({trials[4].config for trials in runs}) > 1


def test_a_search_that_was_interrupted_goes_on_with_the_next_step(tmp_path):
    whole = [trial.config for trial in trials_of(tmp_path / "whole", trials=4)]
    before = [trial.config for trial in trials_of(tmp_path / "parts", trials=2)]
    after = [trial.config for trial in trials_of(tmp_path / "parts", trials=4)]
    assert [*before, *after[1:]] == whole, "both begin by saying what the baseline reached"
