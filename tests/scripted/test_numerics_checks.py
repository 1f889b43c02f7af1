"""What a gate's numbers are worth."""

import pytest

from autotune.accuracy.numerics_verdict import NumericsChecker, numerics_fault
from autotune.context.search_context import survey
from autotune.values.outcome import Lost, OutOfMemory
from benchmarks.numerics import CARRIERS, Case, checked, judged
from scripted_runner import ScriptedRunner, agreeing, unstored_in


@pytest.mark.parametrize(
    "found",
    [
        agreeing(),
        # Another algorithm for a convolution.
        agreeing(gradient_error=0.07, loss_error=0.07, path_error=0.07, reach_error=0.07),
        # Three times the rounding of eager code, as for compiled code in PyTorch's own tests.
        agreeing(gradient_error=0.3, reference_gradient_error=0.1),
        agreeing(loss_error=0.3, reference_loss_error=0.1),
        # Other numbers drawn.
        agreeing(gradient_error=0.9, loss_error=0.5, seed_spread=0.95),
        agreeing(update_error=9e-4),
        # A model that amplifies rounding says so itself.
        agreeing(path_error=0.6, rounding_path_error=0.2),
        agreeing(reach_error=0.09, rounding_reach_error=0.03),
        # A table of an earlier version does not have that.
        agreeing(path_error=0.6, rounding_path_error=None),
    ],
    ids=str,
)
def test_rounding_passes(found):
    assert numerics_fault(found, lower_precision=False) is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (agreeing(gradient_error=0.31), "gradients differ from float64 by 31 %"),
        (
            agreeing(gradient_error=0.09, in_double=False),
            "gradients differ from float32 by 9 %",
        ),
        (
            agreeing(gradient_error=0.4, reference_gradient_error=0.1),
            "gradients differ from float64 by 40 %",
        ),
        (agreeing(loss_error=0.09), "the loss differs from float64 by 9 %"),
        (
            agreeing(update_error=0.5),
            "the optimizer's update differs from the unfused one by 50 %",
        ),
        (agreeing(path_error=0.4), "the weights after the first steps differ by 40 %"),
        (
            agreeing(path_error=0.4, rounding_path_error=0.13),
            "the weights after the first steps differ by 40 %",
        ),
        (agreeing(buffer_error=0.5), "the buffers after the first steps differ by 50 %"),
        # Rounding may lead anywhere, but not less far.
        (
            agreeing(path_error=0.6, reach_error=0.38, rounding_path_error=0.5),
            "the length of the first steps differs by 38 %",
        ),
    ],
    ids=str,
)
def test_more_than_rounding_is_named(found, reason):
    fault = numerics_fault(found, lower_precision=False)
    assert fault.reason == reason
    assert 0 < fault.margin <= 1


@pytest.mark.parametrize(
    ("found", "passes"),
    [
        # Off by less than three quarters of what the next batch would change: the probe decides.
        (agreeing(gradient_error=0.3, batch_spread=1.2), True),
        (agreeing(gradient_error=0.4), False),
        (agreeing(gradient_error=1.0, batch_spread=1.44), True),
        (agreeing(gradient_error=1.4, batch_spread=1.41), False),
        # Twice as large, with nothing to say that batches differ.
        (agreeing(gradient_error=1.0, batch_spread=0.0), False),
        (agreeing(gradient_error=0.9, seed_spread=1.0), True),
        (agreeing(loss_error=0.05), True),
        (agreeing(update_error=0.5), False),
        (agreeing(path_error=0.3, rounding_path_error=0.1), True),
        (agreeing(path_error=0.4, rounding_path_error=0.1), False),
        (agreeing(reach_error=0.09), False),
    ],
    ids=str,
)
def test_gradients_in_a_lower_precision_may_differ_as_those_of_other_batches_do(found, passes):
    assert (numerics_fault(found, lower_precision=True) is None) == passes


def test_the_margin_is_graded_and_bounded():
    margins = []
    for error in (0.002, 0.2, 7.0):
        fault = numerics_fault(agreeing(update_error=error), lower_precision=False)
        assert fault is not None
        margins.append(fault.margin)
    assert margins == [0.002, 0.2, 1.0]


@pytest.mark.parametrize("passing", [OutOfMemory("device", "full"), Lost("disk full")])
def test_what_may_go_better_the_next_time_is_tried_again(passing, study, tmp_path):
    outcomes = [passing, passing, agreeing()]
    # Out of memory, a gate is tried without float64 at once.
    first = 2 if isinstance(passing, OutOfMemory) else 1
    script = iter(outcomes[2 - first :])
    runner = ScriptedRunner(gate=lambda config: next(script))
    context = survey(unstored_in(tmp_path), runner)
    keeper = NumericsChecker(context, runner, study)
    fused = context.baseline.replace(optimizer_impl="fused")
    assert keeper.gated(fused) == passing
    assert study.notes.numerics_checks == {}
    assert keeper.gated(fused) == keeper.gated(fused) == agreeing()
    assert len(runner.batches("gate")) == first + 1


def criteria_of(case):
    answer = checked(case)
    assert answer is not None
    return judged(case, answer).criteria


@pytest.mark.parametrize(
    ("model", "optimizer", "fault", "criterion"),
    [
        ("transformer", "AdamW", "weight decay lost", "update"),
        ("transformer", "AdamW", "gradients twice as large", "gradients"),
        ("perceptron", "SGD", "the loss is reported 10 % too high", "loss"),
        ("perceptron", "SGD", "the first layer is not updated after the first step", "path"),
        (
            *("24 layers with BatchNorm", "SGD", "half the learning rate from the second step on"),
            "reach",
        ),
        (
            *("convolutions with BatchNorm", "AdamW", "BatchNorm's statistics are not updated"),
            "buffers",
        ),
        ("perceptron", "SGD", "the loss is not a number", "not finite"),
    ],
)
def test_each_criterion_finds_what_the_others_miss(model, optimizer, fault, criterion):
    case = Case(model, optimizer, CARRIERS["same precision"], fault)
    assert criteria_of(case) == (criterion,)
    assert not criteria_of(Case(model, optimizer, CARRIERS["same precision"]))
