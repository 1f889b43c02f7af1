"""`benchmarks.repeat` times the answers of several searches in common rounds."""

from contextlib import nullcontext

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import OutOfMemory
from benchmarks import repeat
from scripted_runner import FACTS, ScriptedRunner, at, batch_of


def test_answers_are_compared_in_common_rounds(monkeypatch):
    own = TrainingConfig.of(FACTS.baseline)
    twice, too_large = (own.replace(batch_size=times * batch_of(own)) for times in (2, 64))

    def speed(config, phase):
        return OutOfMemory("host", "killed") if config == too_large else at(10 * batch_of(config))

    runner = ScriptedRunner(speed)
    monkeypatch.setattr(repeat, "SubprocessRunner", lambda folder: nullcontext(runner))
    ratios = repeat.common_ratios("digits_cnn", [twice, None, twice, too_large], rounds=3)
    assert ratios == [pytest.approx(2.0), 1.0, pytest.approx(2.0), 0.0]
