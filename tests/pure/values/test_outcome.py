"""Outcomes as JSON and as one line for people."""

from dataclasses import replace
from typing import get_args

import pytest

from autotune.values import outcome as outcomes
from covering import covers
from factories import IMAGE_FACTS, cuda_machine, measurement

ANSWERS = (
    outcomes.Measured(replace(measurement(), boundary_seconds=(0.25,), epoch_samples=64)),
    outcomes.Probed((0.5, 0.75), 1.5),
    outcomes.FirstLosses((0.5, 0.25), 1.0, (0.1,)),
    outcomes.Inspected(cuda_machine(), IMAGE_FACTS),
    outcomes.Inspected(cuda_machine(), None),
    outcomes.CountedFlops(1e9, "bfloat16", matmul_flops_per_second=1e12),
    outcomes.CountedFlops(),
    outcomes.Diagnosed(
        32, 0.1, 0.19, 0.01, (outcomes.Loading(0, 0.1), outcomes.Loading(2, 0.05)), 0.02
    ),
    outcomes.Diagnosed(32, 0.1, None, 0.0, (), 0.02, launch_seconds=0.01),
    outcomes.Diagnosed(
        *(32, 0.1, None, 0.0, (), 0.02),
        profiled=outcomes.Profiled(8.0, 50, spent={"writing": {"a.py:8": 0.5}}, memory=(1, 2)),
    ),
    outcomes.Observed(
        "cpu", ("train.py:9#0",), "train.py:9#0", 50.0, 800.0, 0.4, {"amp_dtype": "so"}, IMAGE_FACTS
    ),
    outcomes.Gated(
        1e-5, 0.01, 0.0, 0.25, 0.1, 0.02, 1e-7, 1e-6, 0.1, None, 0.02, 0.0, 0.5, in_double=True
    ),
)
FAILURES = (
    outcomes.OutOfMemory("device", "tried to allocate 2 GiB", 12345),
    outcomes.OutOfMemory("shared", "bus error", None),
    outcomes.TimedOut("warm-up", 60.0),
    outcomes.Crashed("killed by SIGSEGV"),
    outcomes.NonFinite("the loss became nan"),
    outcomes.Rejected("fewer samples than one batch"),
    outcomes.NotApplied("compile_mode", "default", "null"),
    outcomes.UserError("ValueError: Umlaut ü", "model.py:3"),
    outcomes.Lost("disk full"),
)


def kind(outcome):
    return type(outcome).__name__


def test_the_examples_below_are_of_every_kind():
    assert {type(outcome) for outcome in (*ANSWERS, *FAILURES)} == set(
        get_args(outcomes.TrialOutcome)
    )
    assert {type(failure) for failure in FAILURES} == set(get_args(outcomes.Failure))


@pytest.mark.parametrize("outcome", [*ANSWERS, *FAILURES], ids=kind)
def test_every_outcome_comes_back_from_json_as_it_was(outcome):
    assert outcomes.outcome_from_json(outcomes.outcome_to_json(outcome)) == outcome


@covers("T13")
@pytest.mark.parametrize("outcome", [*ANSWERS, *FAILURES], ids=kind)
def test_an_outcome_cut_off_anywhere_is_lost(outcome):
    text = outcomes.outcome_to_json(outcome)
    for length in range(0, len(text), 7):
        assert isinstance(outcomes.outcome_from_json(text[:length]), outcomes.Lost)


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "{}", '{"kind": "crashed"}', '{"kind": "crashed", "detail": 3}'),
        '{"kind": "no such kind", "detail": "x"}',
        '{"kind": "timed_out", "phase": "build", "limit_seconds": "60"}',
        '{"kind": "out_of_memory", "memory": "swap", "detail": "x"}',
        b"\xff\xfe",
    ],
)
def test_a_text_that_is_no_outcome_is_lost_and_says_why(text):
    lost = outcomes.outcome_from_json(text)
    assert isinstance(lost, outcomes.Lost)
    assert lost.detail.startswith("the child's outcome is not readable: ")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "null"])
def test_numbers_that_are_not_finite_are_lost(number):
    text = outcomes.outcome_to_json(outcomes.Probed((0.5,), 1.5)).replace("0.5", number)
    assert isinstance(outcomes.outcome_from_json(text), outcomes.Lost)


BLOCK = measurement().blocks[0]


@pytest.mark.parametrize(
    "impossible",
    [
        {"blocks": ()},
        {"blocks": (replace(BLOCK, seconds=0.0),)},
        {"blocks": (replace(BLOCK, stock_samples=BLOCK.samples),)},
        {"blocks": (replace(BLOCK, wait_seconds=-0.1),)},
        {"boundary_seconds": (-1.0,)},
        {"warmup_step_seconds": (-1.0,)},
        {"compile_seconds": -1.0},
        {"epoch_samples": 0},
        {"machine_speed": 0.0},
    ],
)
def test_a_measurement_that_cannot_be_is_lost(impossible):
    run = replace(measurement(), **impossible)
    assert (
        "makes no sense"
        in outcomes.outcome_from_json(outcomes.outcome_to_json(outcomes.Measured(run))).detail
    )


@pytest.mark.parametrize("answer", ANSWERS, ids=kind)
def test_an_answer_to_another_question_is_lost(answer):
    assert outcomes.as_failure(answer) == outcomes.Lost(
        f"the child answered with {answer.kind!r}, which was not asked"
    )


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (outcomes.OutOfMemory("host", "killed"), "out of host memory: killed"),
        (outcomes.TimedOut("build", 60.0), "no result within 60 s (during build)"),
        (
            outcomes.NotApplied("pin_memory", "true", "false"),
            "pin_memory did not take effect: wanted true, read back false",
        ),
        (outcomes.UserError("KeyError: 'x'", "model.py:3"), "model.py:3: KeyError: 'x'"),
        (outcomes.UserError("sys.exit(1)", ""), "sys.exit(1)"),
        (outcomes.Crashed("killed by SIGSEGV"), "killed by SIGSEGV"),
    ],
    ids=lambda value: kind(value) if not isinstance(value, str) else "",
)
def test_a_failure_is_described_on_one_line(failure, line):
    assert outcomes.describe(failure) == line
