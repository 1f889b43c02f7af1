"""Three to six seeds accept or refuse a configuration, paired with those of the baseline."""

import pytest

from autotune.accuracy.accuracy_verdict import SEEDS, AccuracyProber
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import survey
from autotune.values.statistics import SEED_COUNTS
from scripted_runner import ScriptedRunner, batch_of, unstored_in
from study_factories import opened

LARGE = TrainingConfig.of({"batch_size": 64, "num_threads": 2})
MOST_SEEDS = SEED_COUNTS[-1]


BY_A_HAIR = (0.006, 0.0125, *4 * (0.004,))
"""Losses that six seeds show to be allowed on average, with a bound a hair beyond."""


def prober_of(folder, losses, baseline=(0.9,) * 6, seeds=3):
    """A prober for which seed n costs `losses[n]` of the baseline's quality; both go in turn."""

    def quality(config, seed):
        own = baseline[seed % len(baseline)]
        return own - (losses[seed % len(losses)] if batch_of(config) == 64 else 0.0)

    runner = ScriptedRunner(quality=quality)
    options = unstored_in(folder)
    context = survey(options, runner)
    study = opened(options.study.storage, context.space)
    study.notes.probe_samples = 640
    prober = AccuracyProber(context, runner, study)
    assert prober.probe(context.baseline, seeds) is None
    runner.asked.clear()
    return prober, prober.rule, runner


def seeds_of(runner, batch_size):
    return [seed for batch, seeds in runner.probes() if batch == batch_size for seed in seeds]


@pytest.mark.parametrize(
    ("losses", "decision", "seeds"),
    [
        ((0.0,) * 6, "accept", 3),  # exactly the same: no doubt is left
        ((0.9,) * 6, "reject", 1),
        ((0.02,) * 6, "reject", 2),
        ((0.0, 0.001, 0.0, 0.0, 0.0, 0.0), "accept", 3),
        ((0.0, 0.008, 0.004, 0.0, 0.0, 0.0), "undecided", 3),
        ((0.0, 0.0, 0.3, 0.0, 0.0, 0.0), "undecided", 3),
    ],
)
def test_the_search_takes_up_to_three_seeds(losses, decision, seeds, tmp_path):
    prober, _, runner = prober_of(tmp_path, losses)
    verdict = prober.verdict(LARGE, len(SEEDS))
    assert (verdict.decision, len(verdict.qualities)) == (decision, seeds)
    assert seeds_of(runner, 64) == list(range(seeds))
    assert seeds_of(runner, 8) == [], "the baseline's three are known"
    assert bool(verdict.reason) == (decision != "accept")


@pytest.mark.parametrize(
    ("losses", "decision", "seeds"),
    [
        ((0.0,) * 6, "accept", 3),  # never an answer on fewer than three
        ((0.02,) * 6, "reject", 2),
        ((0.0, 0.009, 0.004, 0.003, 0.003, 0.002), "accept", 6),
        (BY_A_HAIR * 2, "accept", 12),  # twelve decide, if the others are as the first six
        ((*BY_A_HAIR, *6 * (0.03,)), "reject", 11),  # until they show that they are not
        ((0.0, 0.018, 0.0, 0.018, 0.0, 0.018), "undecided", 6),  # twelve would not decide
    ],
)
def test_an_answer_takes_as_many_seeds_as_decide(losses, decision, seeds, tmp_path):
    prober, _, runner = prober_of(tmp_path, losses)
    verdict = prober.verdict(LARGE, MOST_SEEDS, least_seeds=len(SEEDS))
    assert (verdict.decision, len(verdict.qualities)) == (decision, seeds)
    assert seeds_of(runner, 8) == list(range(3, seeds)), "the baseline has the same seeds"


@pytest.mark.parametrize(
    ("losses", "is_feasible"), [((0.0, 0.016) * 3, True), ((0.0, 0.03, 0.0) * 2, False)]
)
def test_an_undecided_trial_is_feasible_if_it_is_good_on_average(losses, is_feasible, tmp_path):
    prober, *_ = prober_of(tmp_path, losses)
    verdict = prober.verdict(LARGE, len(SEEDS))
    assert verdict.decision == "undecided"
    assert (verdict.margin <= 0) is is_feasible
    assert verdict.margin < 0.01
    assert "inconclusive" in verdict.reason


def test_seeds_that_are_known_all_count(tmp_path):
    prober, _, runner = prober_of(tmp_path, (0.0, 0.018, 0.0, 0.018, 0.0, 0.018))
    proof = prober.verdict(LARGE, MOST_SEEDS, least_seeds=len(SEEDS))
    runner.asked.clear()
    assert prober.verdict(LARGE, most_seeds=1) == proof
    assert proof.margin > 0, "a trial that six seeds do not decide is infeasible"
    assert runner.probes() == []


def test_seeds_are_paired_so_that_what_varies_with_both_does_not_count(tmp_path):
    baseline = (0.5, 0.9, 0.7, 0.6, 0.8, 0.75)
    prober, *_ = prober_of(tmp_path, (0.004, 0.005, 0.0045) * 2, baseline)
    assert prober.verdict(LARGE, len(SEEDS)).decision == "accept"


SCATTERED = (0.8, 0.9, 1.0, 0.1, 0.9, 0.9)


def test_what_is_tolerated_is_what_was_asked_however_the_baseline_scatters(tmp_path):
    # A loss of 0.05 with every seed, which the baseline's spread of 0.1 would hide.
    prober, rule, _ = prober_of(tmp_path, (0.05, 0.051, 0.049, 0.05, 0.05, 0.05), SCATTERED)
    assert rule.tolerance == pytest.approx(0.009)
    assert prober.verdict(LARGE, MOST_SEEDS, least_seeds=len(SEEDS)).decision == "reject"


def test_more_than_three_seeds_do_not_change_what_is_tolerated(tmp_path):
    prober, rule, _ = prober_of(tmp_path, (0.0,) * 6, SCATTERED)
    assert prober.probe(prober.context.baseline, 5) is None
    assert rule.tolerance == prober.rule.tolerance == pytest.approx(0.009)
    assert prober.rule.baseline == (0.8, 0.9, 1.0, 0.1, 0.9), "all that are known"


@pytest.mark.parametrize(
    ("loss", "decision"),
    [(0.03, "undecided"), (0.05, "reject")],  # the second is more than five times what is allowed
)
def test_a_worse_first_seed_needs_no_more_of_the_baseline(loss, decision, tmp_path):
    prober, _, runner = prober_of(tmp_path, (loss,) * 6, SCATTERED, seeds=1)
    verdict = prober.verdict(LARGE, most_seeds=1)
    assert seeds_of(runner, 8) == []
    assert (verdict.decision, verdict.margin > 0) == (decision, True)
