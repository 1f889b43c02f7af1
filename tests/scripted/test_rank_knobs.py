"""Searches of several processes: what they vary and what their answers tell of the processes."""

from dataclasses import replace

import pytest

from autotune.configuration.best_config import facts, read_best
from autotune.configuration.search_space import find_space, narrow, read_space
from autotune.configuration.training_config import TrainingConfig
from autotune.console.lines import bound_lines
from autotune.context.ranks import space_of_each
from autotune.knobs import ALL_KNOBS
from autotune.searching.run.diagnosis import EXCHANGE, Diagnosis, limits_of
from autotune.searching.search import search
from autotune.values.outcome import Diagnosed, Inspected, Loading
from factories import IMAGE_FACTS, best_config, cpu_machine, written
from scripted_runner import FACTS, ScriptedRunner, at, events_of, unstored_in

RANK_KNOBS = [knob.name for knob in ALL_KNOBS if knob.of_ranks]
OFFERED = "batch_size: [8, 16]\nddp_bucket_mb: [null, 50]\nddp_comm_dtype: [null, float16]\n"
BOTH = ("float16",)


def space_for(ranks, name="full", **baseline):
    config = TrainingConfig.of({"batch_size": 32, **baseline})
    facts = replace(IMAGE_FACTS, comm_dtypes=ranks)
    return narrow(read_space(find_space(name)), cpu_machine(4), facts, config)


def two():
    return ScriptedRunner(inspected=Inspected(cpu_machine(4), replace(FACTS, comm_dtypes=BOTH)))


def test_several_processes_vary_what_their_backend_and_model_allow():
    varied = space_for(BOTH).varied()
    assert set(RANK_KNOBS) <= varied.keys()
    assert varied["ddp_comm_dtype"] == (None, "float16")
    plain = space_for(())
    assert set(RANK_KNOBS) - plain.varied().keys() == {"ddp_comm_dtype"}
    assert "ddp_comm_dtype=float16 dropped: the processes cannot add up gradients in float16" in (
        plain.notes
    )


def test_one_process_searches_as_if_the_knobs_were_not_there(tmp_path):
    """Its proposals, and all else that it yields, are those of a space without them."""
    with_ranks, without = tmp_path / "with", tmp_path / "without"
    told = []
    for folder, space in ((with_ranks, OFFERED), (without, OFFERED.partition("ddp")[0])):
        runner = ScriptedRunner()
        list(search(unstored_in(folder, space, trials=5), runner))
        told.append([(job.task.kind, job.config, job.processes) for job in runner.jobs])
    assert told[0] == told[1]
    assert len(told[0]) > 5


def test_one_process_is_told_in_one_note(tmp_path):
    runner = ScriptedRunner()
    started = events_of(unstored_in(tmp_path, OFFERED), runner)[0]
    assert started.context.space.notes[-1:] == (
        "ddp_bucket_mb, ddp_comm_dtype: left out, because only one process trains",
    )


def test_one_process_takes_the_baseline_without_settings_of_several(tmp_path):
    runner = ScriptedRunner()
    events_of(unstored_in(tmp_path, baseline={"ddp_bucket_mb": 50}), runner)
    assert all("ddp_bucket_mb" not in (job.config or {}) for job in runner.jobs)


def test_settings_of_several_processes_reach_their_jobs_alone(tmp_path):
    runner = two()
    options = unstored_in(tmp_path, OFFERED, baseline={"ddp_bucket_mb": 25}, nproc_per_node=2)
    events_of(options, runner)
    kinds = {"measure", "probe"}
    of_ranks = [job for job in runner.jobs if job.task.kind in kinds]
    assert {job.config["ddp_bucket_mb"] for job in of_ranks if "ddp_bucket_mb" in job.config}
    for job in runner.jobs:
        if job.processes == 1:
            assert not set(RANK_KNOBS) & set(job.config or {})


def test_one_process_does_not_vary_variables_of_the_exchange(tmp_path):
    text = "portable: true\nbatch_size: [8, 16]\nenv:\n  NCCL_MAX_CTAS: [null, '8']\n"
    file, options = read_space(written(tmp_path, text)), unstored_in(tmp_path)
    for processes in (1, 2):
        resources = replace(options.resources, processes=processes)
        found, _ = space_of_each(
            file, replace(options, resources=resources), cpu_machine(4), None, None
        )
        assert ("env.NCCL_MAX_CTAS" in found.offers) is (processes == 2)


def test_the_shipped_spaces_offer_the_knobs_of_several_processes():
    offered = {name: set(read_space(find_space(name)).offers) for name in ("full", "ddp")}
    assert all(set(RANK_KNOBS) <= names for names in offered.values())


def test_another_format_of_the_exchange_is_checked_in_all_processes_and_probed(tmp_path):
    runner = two()
    space = "ddp_comm_dtype: [null, float16]\namp_dtype: [null, bfloat16]\n"
    events_of(unstored_in(tmp_path, space, trials=4, nproc_per_node=2), runner)
    checks = [job for job in runner.jobs if job.task.kind == "gate"]
    assert {(job.processes, job.config.get("ddp_comm_dtype")) for job in checks} == {
        (1, None),
        (2, "float16"),
    }
    of_two = [job for job in checks if job.processes == 2]
    assert {job.config["amp_dtype"] for job in of_two} == {None, "bfloat16"}
    for job in of_two:
        assert not job.task.in_double
        assert job.task.reference == {n: v for n, v in job.config.items() if n != "ddp_comm_dtype"}
    probed = {job.config.get("ddp_comm_dtype") for job in runner.jobs if job.task.kind == "probe"}
    assert probed == {None, "float16"}


OF_BOTH = ("float16",)


def test_an_answer_has_as_many_processes_as_the_launcher_starts(tmp_path):
    found = Inspected(cpu_machine(8), replace(FACTS, comm_dtypes=OF_BOTH), processes=4)
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
    assert limits_of(found.stages)["compute"] == pytest.approx(640)
    assert found.compute_limit == pytest.approx(640)
    assert limits_of(found.stages)["loader, num_workers=0"] == pytest.approx(1280)


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
