"""Each criterion of the numerics check finds a fault that the others miss."""

import pytest

from benchmarks.numerics import CARRIERS, Case, checked, judged


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
            "24 layers with BatchNorm",
            "SGD",
            "half the learning rate from the second step on",
            "reach",
        ),
        (
            "convolutions with BatchNorm",
            "AdamW",
            "BatchNorm's statistics are not updated",
            "buffers",
        ),
        ("perceptron", "SGD", "the loss is not a number", "not finite"),
    ],
)
def test_each_criterion_finds_what_the_others_miss(model, optimizer, fault, criterion):
    case = Case(model, optimizer, CARRIERS["same precision"], fault)
    assert criteria_of(case) == (criterion,)
    assert not criteria_of(Case(model, optimizer, CARRIERS["same precision"]))
