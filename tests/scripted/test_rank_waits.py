"""What is told of each of several processes: its wait for data, and its memory."""

from dataclasses import replace

import pytest

from autotune.console.event_lines import verdict_text
from autotune.report.terminal import row_of
from autotune.searching.run.search_run import details_of
from autotune.study.facts import TrialDetails
from autotune.values.measurement import RankShare
from autotune.values.outcome import Measured, waiting_text
from factories import GIB, measurement
from reporting import report_of, trial


def run_of(*waits):
    """A run whose ranks waited for these shares of its timed seconds."""
    run = measurement(100.0)
    timed = sum(block.seconds for block in run.blocks)
    ranks = (RankShare(share * timed, (at + 1) * GIB) for at, share in enumerate(waits))
    return replace(run, ranks=tuple(ranks))


def waiting(number, *waits, **settings):
    """A trial of several processes, as it is read back from its study."""
    details = details_of(Measured(run_of(*waits)), 2.0)
    stored = TrialDetails.of(details.as_attributes())
    return replace(trial(number, **settings), details=stored)


def test_the_rank_that_waits_longest_is_named():
    told = "rank 1 waits for data 40 % of the time, the others 5 %"
    assert waiting_text(run_of(0.05, 0.4)) == told
    assert waiting_text(run_of(0.3, 0.1, 0.0, 0.1)).startswith("rank 0 waits for data 30 %")


@pytest.mark.parametrize("waits", [(), (0.5,), (0.4, 0.4), (0.10, 0.12)])
def test_ranks_that_wait_alike_or_alone_are_not(waits):
    assert waiting_text(run_of(*waits)) == ""


def test_a_difference_within_the_noise_of_the_rate_is_none():
    run = run_of(0.05, 0.2)
    slow = [replace(block, seconds=1.3 * block.seconds) for block in run.blocks[::2]]
    noisy = tuple(block for pair in zip(slow, run.blocks[1::2], strict=False) for block in pair)
    assert waiting_text(run)
    assert waiting_text(replace(run, blocks=noisy)) == ""


def test_a_trial_says_which_rank_the_others_wait_for():
    one = waiting(3, 0.0, 0.25)
    told = "rank 1 waits for data 25 % of the time, the others 0 %"
    assert verdict_text(one) == f"ok, {told}"
    assert row_of(report_of([one]), one)[-1].endswith(told)
    assert verdict_text(waiting(3, 0.25, 0.25)) == "ok"
