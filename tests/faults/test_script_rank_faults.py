"""One of two processes of a script goes wrong: the trial says which, both end, nothing is left."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from asked_scripts import SCRIPTS, Ask, InTwo
from autotune.configuration.job import Measure, TakeFirstSteps
from autotune.processes.runner import SubprocessRunner
from autotune.values.outcome import (
    Crashed,
    Measured,
    NonFinite,
    TimedOut,
    TrialOutcome,
    UserError,
    describe,
)
from children import QUICK, nobody_is_left
from covering import covers
from factories import written

# Seconds; two processes start on a busy machine.
DEADLINE = 12.0


Ends = Callable[..., TrialOutcome]


@pytest.fixture(params=["forked", pytest.param("launched", marks=pytest.mark.long)])
def outcome_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ends]:
    with SubprocessRunner(tmp_path / "inductor", warm=request.param == "forked") as runner:
        ask = Ask(InTwo(runner, DEADLINE), tmp_path / "trial")

        def run(fault: str, *arguments: str, script: str = "faulty_rank.py") -> TrialOutcome:
            return ask(script, fault, *arguments, task=Measure(QUICK), settings={})

        yield run
    assert nobody_is_left(tmp_path)
    how = (tmp_path / "trial" / "launch").read_text()
    assert how.startswith("forked" if request.param == "forked" else "fresh interpreter")


@covers("T23")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("killed", Crashed("rank 1 was killed by SIGKILL; log: stderr.rank1.log")),
        ("leaves", Crashed("rank 1 ended with code 3 and without a result; log: stderr.rank1.log")),
    ],
)
def test_a_rank_that_dies_is_named_and_not_the_one_that_lost_its_peer(
    fault: str, said: Crashed, outcome_of: Ends
) -> None:
    assert outcome_of(fault) == said


@covers("T23")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raises", "rank 1: ValueError: rank 1 does not like this batch"),
        ("exits", "rank 1: the code called sys.exit(7)"),
    ],
)
def test_a_rank_that_raises_is_named_with_its_line_and_its_log(
    fault: str, said: str, outcome_of: Ends
) -> None:
    outcome = outcome_of(fault)
    assert isinstance(outcome, UserError), outcome
    assert said in outcome.detail
    assert "log: stderr.rank1.log" in outcome.detail
    assert outcome.where.startswith(f"{SCRIPTS / 'faulty_rank.py'}:")


@covers("T25")
def test_a_rank_whose_training_ends_before_the_others_is_named(outcome_of: Ends) -> None:
    outcome = outcome_of("ends early")
    assert isinstance(outcome, UserError), outcome
    assert "rank 1: it ended after 5 steps, too few to be timed" in outcome.detail


@covers("T24")
def test_a_rank_that_hangs_ends_the_trial_at_its_deadline(outcome_of: Ends, tmp_path: Path) -> None:
    outcome = outcome_of("hangs")
    assert isinstance(outcome, TimedOut), outcome
    assert "in goes_wrong" in (tmp_path / "trial" / "stderr.rank1.log").read_text()


@covers("T24")
def test_a_rank_that_was_stopped_for_a_while_disturbs_the_trial_alone(outcome_of: Ends) -> None:
    outcome = outcome_of("stopped")
    assert isinstance(outcome, Measured), describe(outcome)
    assert any(block.noise.stopped for block in outcome.measurement.blocks)


@covers("T23")
def test_a_parameter_that_is_no_number_fails_the_trial(outcome_of: Ends) -> None:
    outcome = outcome_of("diverges")
    assert isinstance(outcome, NonFinite), outcome
    assert outcome.detail.startswith("rank ")


@covers("T28")
def test_a_port_in_use_is_what_the_script_says(outcome_of: Ends) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = outcome_of("port in use", str(taken.getsockname()[1]))
    # With torch 2.11 all ranks connect to the port, where nobody answers.
    waits = isinstance(outcome, TimedOut) and outcome.phase.startswith("the script's start")
    assert waits or (isinstance(outcome, UserError) and "EADDRINUSE" in outcome.detail), outcome


@covers("T28")
def test_processes_that_never_join_each_other_are_refused_with_what_to_do(outcome_of: Ends) -> None:
    outcome = outcome_of("--epochs", "1000", script="plain_loop.py")
    assert isinstance(outcome, UserError), outcome
    assert "nothing calls torch.distributed.init_process_group" in outcome.detail


def test_a_loss_is_the_mean_over_the_ranks(tmp_path: Path) -> None:
    source = (SCRIPTS / "faulty_rank.py").read_text().replace("loss.backward()", LOSS)
    script = written(tmp_path, source, "offset.py")
    with SubprocessRunner(tmp_path / "inductor") as runner:
        ask = Ask(InTwo(runner, DEADLINE), tmp_path / "trial")
        found = ask(str(script), "none", task=TakeFirstSteps(4), settings={})
    assert found.losses == pytest.approx((5.0, 6.0, 7.0, 8.0))  # type: ignore[union-attr]


LOSS = "(loss * 0 + 10 * rank + step).backward()"
