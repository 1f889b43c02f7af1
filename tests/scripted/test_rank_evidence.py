"""Several processes in an answer, and the exchange in a diagnosis."""

from dataclasses import replace

import pytest

from autotune.configuration.answer_words import facts
from autotune.configuration.best_config import read_best
from autotune.configuration.training_config import TrainingConfig
from autotune.console.event_lines import bound_lines
from autotune.searching.run.diagnosis import EXCHANGE, Diagnosis
from autotune.values.outcome import Diagnosed, Inspected, Loading, RankFacts
from factories import best_config, cpu_machine
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
