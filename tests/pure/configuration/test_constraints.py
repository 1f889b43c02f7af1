"""A trial has a value, margins, and the reason where a limit is passed."""

import re
from dataclasses import replace

import pytest

from autotune.configuration import constraints as rules
from autotune.values import outcome as kinds
from factories import cpu_machine, measurement

LIMIT = 1000


def verdict(outcome, accuracy=None):
    objection = rule().objection((0.5, 0.6, 0.7)) if accuracy and accuracy > 0 else ""
    return rules.judge(outcome, rules.THROUGHPUT, LIMIT, accuracy, objection)


def measured(peak_bytes=500):
    return kinds.Measured(measurement(samples_per_second=40.0, peak_bytes=peak_bytes))


def test_every_verdict_has_all_margins_in_their_order():
    outcomes = [
        measured(),
        kinds.OutOfMemory("device", "x"),
        kinds.NonFinite("x"),
        kinds.Crashed("x"),
    ]
    assert rules.CONSTRAINTS == ("memory", "accuracy", "ran")
    assert {tuple(verdict(outcome).margins) for outcome in outcomes} == {rules.CONSTRAINTS}


@pytest.mark.parametrize(
    ("peak_bytes", "margin"), [(500, -0.5), (1000, 0.0), (1001, 0.001), (1500, 0.5)], ids=str
)
def test_the_memory_margin_is_graded_by_how_far_the_limit_is_passed(peak_bytes, margin):
    found = verdict(measured(peak_bytes))
    assert found.margins["memory"] == pytest.approx(margin)
    assert found.feasible == (margin <= 0)


def test_a_trial_over_its_memory_keeps_its_value_and_says_why_it_cannot_win():
    found = verdict(measured(1500))
    assert found.value == pytest.approx(40)
    assert found.reason == "memory: 1.46 KiB is 50 % over the limit 1000 B"


def test_a_trial_that_made_the_allocator_try_again_counts_as_over_its_memory():
    run = replace(measurement(peak_bytes=500), allocator_retries=1)
    found = verdict(kinds.Measured(run))
    assert found.margins["memory"] > 0
    assert not found.feasible


def test_an_accuracy_margin_is_taken_over_and_can_refuse():
    assert verdict(measured(), accuracy=-0.25).margins["accuracy"] == -0.25
    found = verdict(measured(), accuracy=0.25)
    assert not found.feasible
    assert found.reason == "evaluate is 0.6, minimum 0.8 (3 seeds)"


def test_two_passed_limits_are_both_named():
    found = verdict(measured(1500), accuracy=0.25)
    assert (
        found.reason == "memory: 1.46 KiB is 50 % over the limit 1000 B; "
        "evaluate is 0.6, minimum 0.8 (3 seeds)"
    )


@pytest.mark.parametrize(
    ("peak_bytes", "margin"), [(None, 0.01), (500, 0.01), (1005, 0.01), (3000, 2.0)], ids=str
)
def test_out_of_memory_is_graded_where_the_peak_is_known_and_never_holds(peak_bytes, margin):
    found = verdict(kinds.OutOfMemory("device", "x", peak_bytes))
    assert found.margins == {"memory": pytest.approx(margin), "accuracy": 0, "ran": 0}
    assert found.value is None


def test_a_loss_that_is_not_finite_violates_accuracy():
    found = verdict(kinds.NonFinite("the loss became nan"))
    assert found.margins == {"memory": 0, "accuracy": 1, "ran": 0}
    assert found.reason == "the loss became nan"


@pytest.mark.parametrize(
    "outcome",
    [
        kinds.TimedOut("build", 60.0),
        kinds.Crashed("x"),
        kinds.Rejected("x"),
        kinds.NotApplied("pin_memory", "true", "false"),
        kinds.UserError("x", ""),
        kinds.Lost("x"),
        kinds.Probed((0.5,), 1.0),
        kinds.Inspected(cpu_machine(), None),
        kinds.CountedFlops(),
    ],
    ids=lambda outcome: outcome.kind,
)
def test_a_trial_that_did_not_run_has_no_value_and_cannot_win(outcome):
    found = verdict(outcome)
    assert found.value is None
    assert found.margins == {"memory": 0, "accuracy": 0, "ran": 1}
    assert not found.feasible
    assert found.reason


def rule(higher_is_better=True, tolerance=0.1, minimum=None):
    return rules.AccuracyRule("evaluate", higher_is_better, (0.8, 0.9, 1.0), tolerance, minimum)


@pytest.mark.parametrize(
    ("qualities", "margin"),
    [
        ((0.8, 0.9, 1.0), -0.1 / 0.9),  # as good as the baseline: the whole tolerance is left
        ((0.7, 0.8, 0.9), 0.0),  # the tolerance used up
        ((0.6, 0.7, 0.8), 0.1 / 0.9),
        ((0.5, 0.6, 0.7), 0.2 / 0.9),
        ((0.9, 1.0, 1.1), -0.2 / 0.9),
    ],
)
def test_the_accuracy_margin_is_graded_relative_to_the_baseline(qualities, margin):
    assert rule().margin(qualities) == pytest.approx(margin)


def test_qualities_are_compared_seed_by_seed_so_that_one_seed_is_enough():
    # 0.8 equals the baseline's own first seed, though it is 0.1 below its mean.
    assert rule(tolerance=0.05).margin((0.8,)) == pytest.approx(-0.05 / 0.9)


def test_a_loss_is_better_when_it_is_lower():
    assert rule(higher_is_better=False).margin((0.5, 0.6, 0.7)) < 0
    assert rule(higher_is_better=False).margin((1.0, 1.1, 1.2)) > 0


def test_a_minimum_holds_whatever_the_baseline_reaches():
    assert rule(minimum=0.95).margin((0.8, 0.9, 1.0)) == pytest.approx(0.05 / 0.9)


def test_a_minimum_that_is_reached_does_not_loosen_the_tolerance():
    assert rule(minimum=0.1).margin((0.6, 0.7, 0.8)) == pytest.approx(0.1 / 0.9)


def test_a_baseline_of_zero_is_no_division_by_zero():
    zero = rules.AccuracyRule("evaluate", True, (0.0, 0.0, 0.0), 0.5, None)
    assert zero.margin((-1.0, -1.0, -1.0)) == pytest.approx(0.5)


def test_a_relative_tolerance_is_a_share_of_the_baselines_size():
    assert rules.Tolerance(0.1, relative=True).absolute((2.0, 2.0)) == pytest.approx(0.2)
    assert rules.Tolerance(0.1, relative=True).absolute((-2.0, -2.0)) == pytest.approx(0.2)
    assert rules.Tolerance(0.1, relative=False).absolute((2.0, 2.0)) == pytest.approx(0.1)


def test_of_a_loss_a_share_is_of_what_training_gained():
    one_percent = rules.Tolerance(0.01, relative=True)
    gained = one_percent.absolute((0.088, 0.09, 0.092), 4.088)
    assert gained == pytest.approx(0.04), "of the seed whose loss before training is known"
    assert one_percent.absolute((0.09, 0.088, 0.086)) == pytest.approx(0.00088), "if unknown"
    assert one_percent.absolute((5.0, 5.0), 4.0) == 0, "nothing was gained, nothing may be lost"
    assert rules.Tolerance(0.01, relative=False).absolute((0.09, 0.088), 4.088) == 0.01


def test_a_tolerance_says_what_it_is():
    own, one_percent = (0.09, 0.086), rules.Tolerance(0.01, relative=True)
    gained = "1 % of what training gained (held_out_loss 4.088 before, 0.09 after, with seed 0)"
    assert one_percent.words("held_out_loss", own, 4.088) == gained
    assert one_percent.words("evaluate", own, None) == "1 % of your evaluate"
    assert rules.Tolerance(0.02, relative=False).words("evaluate", own, None) == "as asked"


def test_a_floor_is_said_where_it_binds():
    assert rule(minimum=0.95).floor_words(3) == ", and at least 0.95"
    assert rule(minimum=0.5).floor_words(3) == "", "the tolerance asks for more"
    assert rule().floor_words(3) == ""


def test_only_what_is_rejected_is_said_to_be_beyond_the_limit():
    worse = rule().objection((0.6, 0.7, 0.8))
    assert worse == "evaluate is 0.7, minimum 0.8 (3 seeds)"
    doubtful = rule().objection((0.6, 0.8, 0.8))
    assert re.search(r"inconclusive: evaluate 0\.733333, .* 0\.57\d+ < minimum 0\.8 \(3", doubtful)
    assert rule().objection((0.6,)).endswith("inconclusive: evaluate 0.6, limit 0.7 (1 seed)")


def test_the_bound_of_a_loss_is_above_it():
    said = rule(higher_is_better=False).objection((0.8, 1.0, 1.2))
    assert re.search(r"evaluate 1, 95 % upper bound 1\.2\d+ > maximum 1 ", said)


def test_what_is_below_the_floor_is_said_to_be_below_it():
    said = rule(minimum=0.95).objection((0.8, 0.9, 1.0))
    assert said == "evaluate is 0.9, minimum 0.95 (3 seeds)"


def test_seeds_that_agree_accept_and_seeds_that_scatter_leave_it_open():
    assert rule().decision((0.79, 0.89, 0.99)) == "accept"
    assert rule().decision((0.6, 0.9, 1.0)) == "undecided"
    assert rule().decision((0.6, 0.7, 0.8)) == "reject"


def test_nothing_below_the_floor_is_accepted():
    assert rule(minimum=0.95).decision((0.8, 0.9, 1.0)) == "undecided"
    assert rule(minimum=0.85).decision((0.8, 0.9, 1.0)) == "accept"


def test_a_quality_without_a_partner_is_never_dropped_silently():
    with pytest.raises(ValueError, match="zip"):
        rule().losses((0.8, 0.9, 1.0, 0.1))
