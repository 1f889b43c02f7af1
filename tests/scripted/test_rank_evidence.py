"""What several processes tell: how many they are, what their exchange takes, who waits for whom."""

from dataclasses import replace

import pytest

from autotune.configuration.answer_words import facts
from autotune.configuration.best_config import read_best
from autotune.configuration.training_config import TrainingConfig
from autotune.console.event_lines import bound_lines, verdict_text
from autotune.report.terminal import row_of
from autotune.searching.run.diagnosis import EXCHANGE, Diagnosis
from autotune.searching.run.search_run import details_of
from autotune.study.facts import TrialDetails
from autotune.values.measurement import RankShare
from autotune.values.outcome import Diagnosed, Inspected, Loading, Measured, RankFacts, waiting_text
from factories import GIB, best_config, cpu_machine, measurement
from reporting import report_of, trial
from scripted_runner import FACTS, ScriptedRunner, at, events_of, unstored_in

BOTH = RankFacts(comm_dtypes=("float16",))


def test_an_answer_has_as_many_processes_as_the_launcher_starts(tmp_path):
    found = Inspected(cpu_machine(8), replace(FACTS, ranks=BOTH), processes=4)
    runner = ScriptedRunner(lambda config, phase: at(100), inspected=found)
    options = unstored_in(tmp_path, "batch_size: [8, 16]\n", launch="env", trials=1)
    events_of(options, runner)
    assert read_best(tmp_path / "best.yaml").processes == 4


def answer():
    config = TrainingConfig.of({"batch_size": 64})
    best = best_config(config, TrainingConfig.of({}))
    return best.model_copy(update={"processes": 2})


def test_an_answer_says_how_many_trained_together():
    said = dict(facts(answer()))["processes"]
    assert said == "2, 128 samples a step: batch_size 64 in each"


def diagnosis(exchange):
    stages = Diagnosed(
        batch_size=32,
        compute_seconds=0.1,
        double_compute_seconds=0.2,
        transfer_seconds=0.0,
        loading=(Loading(0, 0.05),),
        optimizer_seconds=0.01,
        processes=2,
        exchange_seconds=exchange,
    )
    return Diagnosis(stages, cpu_machine(4), TrainingConfig.of({}), 32)


def test_rates_of_the_stages_are_of_all_processes():
    found = diagnosis(0.02)
    assert found.limits()["compute"] == pytest.approx(640)
    assert found.compute_limit == pytest.approx(640)
    assert found.limits()["loader, num_workers=0"] == pytest.approx(1280)


def test_an_exchange_that_takes_next_to_nothing_is_not_worth_a_trial():
    assert set(EXCHANGE) <= diagnosis(0.0005).frozen().keys()
    assert not set(EXCHANGE) & diagnosis(0.02).frozen().keys()
    assert not set(EXCHANGE) & diagnosis(None).frozen().keys()
    assert diagnosis(0.0005).frozen()["ddp_bucket_mb"] == (
        "the gradient all-reduce takes 0.5 % of a step"
    )


def test_a_diagnosis_names_the_exchange():
    (exchange,) = bound_lines(diagnosis(0.02))
    assert "20 % of a step" in exchange
    assert bound_lines(diagnosis(None)) == []


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
