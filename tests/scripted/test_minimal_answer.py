"""The result has no setting that does not pay, and says what each of the others gives."""

import pytest
import yaml

from autotune.configuration.best_config import explained
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Crashed
from scripted_runner import ScriptedRunner, at, batch_of, events_of, unstored_in
from search_clock import timed_runner

SPACE = "batch_size: [8, 64]\nnum_workers: [0, 2]\noptimizer_impl: [null, fused]\n"
ALL = {"batch_size": 64, "num_workers": 2, "optimizer_impl": "fused"}


def rate(config, phase):
    """A larger batch gives a factor of four, workers a half more, and the optimizer nothing."""
    return at(100 * (4 if batch_of(config) == 64 else 1) * (1.5 if config["num_workers"] else 1))


def searched(folder, runner, **changes):
    """A search that measures your settings and one that changes all three."""
    options = unstored_in(
        folder, SPACE, **{"trials": 2, "warm_start": (TrainingConfig.of(ALL),), **changes}
    )
    return events_of(options, runner)[-1].best


def test_what_does_not_pay_is_taken_back_and_the_rest_is_told(tmp_path):
    runner = ScriptedRunner(rate)
    best = searched(tmp_path, runner)
    assert (best.config["batch_size"], best.config["num_workers"]) == (64, 2)
    assert best.config["optimizer_impl"] is None
    gains = {tuple(gain.settings): gain.ratio for gain in best.evidence.gains}
    assert gains == {("batch_size",): pytest.approx(4)}
    assert best.evidence.taken_back.settings == {"optimizer_impl": "fused"}
    assert best.evidence.not_tried_without == ("num_workers",), "expected to give most"
    assert (best.evidence.speedup.ratio, best.evidence.speedup.rounds) == (pytest.approx(6), 4)
    told = yaml.safe_load((tmp_path / "best.yaml").read_text())
    assert told["evidence"]["changed"].keys() == {"batch_size", "num_workers", "prefetch_factor"}
    words = explained(best)
    assert "each gives  batch_size=64 4.00x (4.00 to 4.00)" in words
    assert "left out    optimizer_impl=fused 1.00x (1.00 to 1.00), not beyond the noise" in words


def test_it_was_timed_in_the_rounds_that_confirm_it(tmp_path):
    runner = ScriptedRunner(rate)
    searched(tmp_path, runner)
    jobs = zip(runner.jobs, runner.asked, strict=True)
    timed = [TrainingConfig.of(job.config) for job, asked in jobs if asked.phase == "confirmation"]
    less = {**ALL, "optimizer_impl": None}
    assert sum(all(one[name] == less[name] for name in less) for one in timed) == 4
    assert len(timed) == 3 * 4 + 3, "what pays is left out three times"


def test_one_setting_gives_all_of_the_speedup(tmp_path):
    runner = ScriptedRunner(rate)
    best = searched(tmp_path, runner, warm_start=(TrainingConfig.of({"batch_size": 64}),))
    assert best.evidence.gains is best.evidence.not_tried_without is None
    assert len(runner.batches("confirmation")) == 8


def test_a_setting_without_which_it_fails_stays(tmp_path):
    def measure(config, phase):
        if phase == "confirmation" and batch_of(config) == 64 and not config["optimizer_impl"]:
            return Crashed("killed by SIGSEGV")
        return rate(config, phase)

    best = searched(tmp_path, ScriptedRunner(measure))
    assert best.config["optimizer_impl"] == "fused"
    assert best.evidence.taken_back is None
    assert set(best.evidence.not_tried_without) == {"num_workers", "optimizer_impl"}
    assert "optimizer_impl" in explained(best).partition("was not timed without ")[2]


def test_short_of_time_it_says_what_was_not_tried(tmp_path, monkeypatch):
    runner = timed_runner(monkeypatch, measure=rate, seconds=lambda config, phase: 5.0)
    best = searched(tmp_path, runner, time_budget_seconds=170.0)
    tried = {name for gain in best.evidence.gains or () for name in gain.settings}
    back = best.evidence.taken_back
    tried |= set() if back is None else set(back.settings)
    assert tried | set(best.evidence.not_tried_without) == set(ALL)
    assert best.evidence.not_tried_without
    assert runner.elapsed <= 170.0 * 1.1
