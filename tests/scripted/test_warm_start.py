"""Configurations of an earlier search are tried first, as far as this search space has them."""

from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import TrialEnded
from scripted_runner import ScriptedRunner, batch_of, events_of, unstored_in


def test_a_search_tries_the_seeds_first_and_measures_them_itself(tmp_path):
    seeds = (TrainingConfig.of({"batch_size": 64}), TrainingConfig.of({"batch_size": 999}))
    runner = ScriptedRunner()
    events = events_of(unstored_in(tmp_path, trials=4, warm_start=seeds), runner)
    trials = [event.trial for event in events if isinstance(event, TrialEnded)]
    assert [batch_of(trial.config) for trial in trials[:2]] == [8, 64]
    assert runner.batches("trial")[0] == 64
    assert len({trial.config for trial in trials}) == 4, "what is outside is no trial of its own"
