"""Two processes of a script that do not train together; other faults are in test_rank_faults."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from asked_scripts import SCRIPTS, Ask, InTwo
from autotune.configuration.job import Measure, TakeFirstSteps
from autotune.processes.runner import SubprocessRunner
from autotune.values.outcome import TimedOut, TrialOutcome, UserError
from children import QUICK, nobody_is_left
from covering import covers
from factories import written
from faulty_ranks import DEADLINE, PATIENCE

Ends = Callable[..., TrialOutcome]


@pytest.fixture
def outcome_of(tmp_path: Path) -> Iterator[Ends]:
    with SubprocessRunner(tmp_path / "inductor") as runner:

        def run(script: str, *words: str, seconds: float = PATIENCE) -> TrialOutcome:
            ask = Ask(InTwo(runner, seconds), tmp_path / "trial")
            return ask(script, *words, task=Measure(QUICK), settings={})

        yield run
    assert nobody_is_left(tmp_path)


@covers("T25")
def test_a_rank_whose_training_ends_before_the_others_is_named(outcome_of: Ends) -> None:
    outcome = outcome_of("faulty_rank.py", "ends early")
    assert isinstance(outcome, UserError), outcome
    assert "rank 1: it ended after 5 steps, too few to be timed" in outcome.detail


@covers("T28")
def test_a_port_in_use_is_what_the_script_says(outcome_of: Ends) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        outcome = outcome_of("faulty_rank.py", "port in use", port, seconds=DEADLINE)
    # With torch 2.11 all ranks connect to the port, where nobody answers.
    waits = isinstance(outcome, TimedOut) and outcome.phase.startswith("the script's start")
    assert waits or (isinstance(outcome, UserError) and "EADDRINUSE" in outcome.detail), outcome


@covers("T28")
def test_processes_that_never_join_each_other_are_refused_with_what_to_do(outcome_of: Ends) -> None:
    outcome = outcome_of("plain_loop.py", "--epochs", "1000")
    assert isinstance(outcome, UserError), outcome
    assert "nothing calls torch.distributed.init_process_group" in outcome.detail


def test_a_loss_is_the_mean_over_the_ranks(tmp_path: Path) -> None:
    source = (SCRIPTS / "faulty_rank.py").read_text().replace("loss.backward()", LOSS)
    script = written(tmp_path, source, "offset.py")
    with SubprocessRunner(tmp_path / "inductor") as runner:
        ask = Ask(InTwo(runner), tmp_path / "trial")
        found = ask(str(script), "none", task=TakeFirstSteps(4), settings={})
    assert found.losses == pytest.approx((5.0, 6.0, 7.0, 8.0))  # type: ignore[union-attr]


LOSS = "(loss * 0 + 10 * rank + step).backward()"
