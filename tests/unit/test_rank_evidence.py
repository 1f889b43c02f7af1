"""What an answer of several processes says: scaling, the exchange, a rank that others wait for."""

from dataclasses import replace

import pytest

from autotune.configuration.best_config import read_best
from autotune.configuration.evidence_parts import OneProcess, Scaling, Straggler
from autotune.configuration.training_config import TrainingConfig
from autotune.console.answer_lines import processes_lines
from autotune.console.event_lines import rank_lines
from autotune.production import Best
from autotune.report.explain import explanation
from autotune.searching.confirmation.limits import limits_of_result
from autotune.searching.run.diagnosis import EXCHANGE, Diagnosis
from autotune.values.measurement import QUIET, Block
from autotune.values.outcome import Crashed, Inspected
from autotune.values.stages import Diagnosed, Loading, SpeedLimits, StageRound, slow_rank
from autotune.values.workload_facts import RankFacts
from factories import best_config, cpu_machine, measurement
from reporting import report_of, trial
from scripted_runner import FACTS, ScriptedRunner, at, events_of
from scripted_runner import unstored_in as options_in

BOTH = RankFacts(comm_dtypes=("float16",))


def block(seconds):
    return Block(seconds, 100, 0.0, noise=QUIET)


def rounds_of(count=6, training=2.0, apart=1.5, computing=(1.0, 1.25), loading=(0.2, 0.2)):
    one = StageRound(
        block(training),
        block(max(computing)),
        block(max(loading)),
        block(apart),
        computing,
        loading,
    )
    return SpeedLimits((one,) * count)


def test_the_exchange_is_the_difference_of_training_with_and_without_it():
    limits = limits_of_result(rounds_of(), [measurement(50.0)], None)
    assert limits.exchange_share == pytest.approx(0.25)
    assert limits.exchange_share_ci95 == pytest.approx((0.25, 0.25))


def test_an_exchange_that_is_hidden_behind_computing_takes_nothing():
    limits = limits_of_result(rounds_of(apart=2.1), [measurement(50.0)], None)
    assert limits.exchange_share == 0.0
    assert limits.exchange_share_ci95 == (0.0, 0.0)


def test_the_rank_that_computes_longer_is_the_straggler():
    limits = limits_of_result(rounds_of(), [measurement(50.0)], None)
    assert limits.straggler == Straggler(rank=1, stage="computing", ratio=1.25, ci95=(1.25, 1.25))


def test_a_rank_that_loads_longer_is_one_too():
    found = rounds_of(computing=(1.0, 1.01), loading=(0.9, 0.3))
    straggler = limits_of_result(found, [measurement(50.0)], None).straggler
    assert (straggler.rank, straggler.stage, straggler.ratio) == (0, "loading", 3.0)


def test_equals_within_the_noise_have_no_straggler():
    seconds = [(1.0, 1.02), (1.03, 1.0), (1.0, 1.06), (1.0, 1.05), (1.02, 1.0), (1.0, 1.04)]
    assert slow_rank(seconds) is None
    assert slow_rank([(1.0, 1.1)] * 6).rank == 1
    assert slow_rank([(1.0,)] * 6) is None


def test_of_four_ranks_the_slowest_is_held_against_the_others():
    slow = slow_rank([(1.0, 1.1, 2.0, 1.0)] * 6)
    assert (slow.rank, slow.ratio) == (2, 2.0)


def searched(folder, measure=lambda config, phase: at(100), runner=None, **options):
    """The answer of a scripted search of two processes on four cores."""
    runner = runner or ScriptedRunner(measure)
    runner.inspected = Inspected(cpu_machine(4), replace(FACTS, ranks=BOTH))
    space = "batch_size: [8, 16]\n"
    events_of(options_in(folder, space, nproc_per_node=2, trials=2, **options), runner)
    return read_best(folder / "best.yaml"), runner


@pytest.mark.parametrize(("on_host", "told"), [(2, 2), (4, None)])
def test_an_answer_of_several_hosts_says_how_many_processes_each_has(tmp_path, on_host, told):
    facts = replace(FACTS, ranks=BOTH)
    found = Inspected(cpu_machine(8), facts, processes=4, on_host=on_host)
    runner = ScriptedRunner(lambda config, phase: at(100), inspected=found)
    options = options_in(tmp_path, "batch_size: [8, 16]\n", launch="env", trials=1)
    events_of(options, runner)
    best = read_best(tmp_path / "best.yaml")
    assert (best.processes, best.processes_per_host) == (4, told)
    hosts = "" if told is None else ", at most 2 a host"
    assert processes_lines(best)[0].startswith(f"  processes   4 processes{hosts}, a step of ")
    assert ("processes_per_host" in (tmp_path / "best.yaml").read_text()) == (told is not None)


def speeds(config, phase):
    """One process adds up two batches; it is a little more than half as fast as two."""
    return at(100 if config["accumulation_steps"] == 1 else 60)


def test_all_processes_are_compared_with_one_on_as_many_samples(tmp_path):
    best, runner = searched(tmp_path, speeds, baseline={"num_threads": 2, "num_workers": 1})
    scaling = best.evidence.scaling
    assert scaling.ratio == pytest.approx(100 / 60, rel=1e-3)
    assert scaling.rounds == 6
    assert scaling.one_process.settings == {
        "accumulation_steps": 2,
        "num_threads": 4,
        "num_workers": 2,
    }
    ones = [job for job, asked in zip(runner.jobs, runner.asked, strict=True) if is_one(asked)]
    assert {(job.processes, job.config["accumulation_steps"]) for job in ones} == {(1, 2)}
    assert len(ones) == 6


def is_one(asked):
    return "scaling" in asked.folder.parts and asked.folder.name.endswith("-one")


def test_one_process_that_fails_leaves_the_answer_without_a_comparison(tmp_path):
    def measure(config, phase):
        return at(100) if config["accumulation_steps"] == 1 else Crashed("too large")

    best, _ = searched(tmp_path, measure)
    assert best.evidence.scaling is None
    assert best.processes == 2


def test_a_search_of_one_process_compares_nothing(tmp_path):
    events_of(options_in(tmp_path), ScriptedRunner())
    best = read_best(tmp_path / "best.yaml")
    assert best.evidence.scaling is None
    assert "one_process:" not in (tmp_path / "best.yaml").read_text()


def answer():
    config = TrainingConfig.of({"batch_size": 64})
    best = best_config(config, TrainingConfig.of({}))
    one = OneProcess(settings={"accumulation_steps": 2}, samples_per_second=90.0, ci95=(89.0, 91.0))
    limits = best.evidence.limits.model_copy(
        update={
            "exchange_share": 0.125,
            "exchange_share_ci95": (0.1, 0.15),
            "straggler": Straggler(rank=1, stage="computing", ratio=1.21, ci95=(1.18, 1.25)),
        }
    )
    scaling = Scaling(one_process=one, ratio=1.667, ci95=(1.6, 1.7), rounds=6)
    evidence = best.evidence.model_copy(update={"limits": limits, "scaling": scaling})
    return best.model_copy(update={"evidence": evidence, "processes": 2})


def test_the_lines_say_what_was_measured():
    assert processes_lines(answer()) == [
        "  processes   2 processes, a step of 128 samples: batch_size 64 in each",
        "  scaling     1.67 times as fast as one process (1.60 to 1.70, 6 rounds), which has "
        "accumulation_steps=2",
        "  exchange    of gradients takes 12 % of a step (10 to 15 %)",
        "  straggler   rank 1 takes 1.21 times as long for computing as the others (1.18 to 1.25), "
        "which wait for it",
    ]


def test_production_and_files_keep_the_evidence(tmp_path):
    from autotune.configuration.best_config import write_best

    write_best(answer(), tmp_path / "best.yaml")
    assert read_best(tmp_path / "best.yaml") == answer()
    assert "scaling: 1.67 times as fast as one process" in Best(answer()).explain()


def diagnosis(exchange, **changes):
    stages = Diagnosed(
        batch_size=32,
        compute_seconds=0.1,
        double_compute_seconds=0.2,
        transfer_seconds=0.0,
        loading=(Loading(0, 0.05),),
        optimizer_seconds=0.01,
        processes=2,
        exchange_seconds=exchange,
        **changes,
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
        "exchanging gradients takes 0.5 % of a step"
    )


def test_a_diagnosis_names_the_exchange_and_the_straggler():
    assert rank_lines(diagnosis(0.02, rank_seconds=((0.1, 0.2),) * 6)) == [
        "Exchanging gradients takes 20 % of a step.",
        "Rank 1 computes 2.00 times as long as the others (2.00 to 2.00), which wait for it.",
    ]
    assert rank_lines(diagnosis(None)) == []


def test_a_report_tells_it_in_sentences():
    text = " ".join(explanation(report_of([trial(0), trial(1, 150.0)], answer())))
    assert "It is 1.67 times as fast as one process" in text
    assert "The exchange of gradients takes 12 % of a step" in text
    assert "Of the processes, rank 1 takes 1.21 times as long for computing" in text
