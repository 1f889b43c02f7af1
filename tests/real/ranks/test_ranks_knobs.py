"""Settings, facts and stages of two real processes that train together."""

from dataclasses import replace

import pytest

from autotune.accuracy.numerics_verdict import numerics_fault
from autotune.configuration.job import CountFlops, Diagnose, Gate, Inspect, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.values import outcome as outcomes
from children import (
    SETTINGS,
    WORKLOADS,
    ended_as,
    job_for,
    measured,
    model_of,
    nobody_is_left,
    run_child,
)

EXCHANGE = {
    "ddp_bucket_mb": 1,
    "gradient_as_bucket_view": True,
    "ddp_comm_dtype": "float16",
}
PLAN = MeasurePlan(warmup_steps=1, block_seconds=0.05, block_counts=(6,), max_seconds=3.0)
SLOW = """
import os, time
def compute_loss(model, batch):
    time.sleep(0.02 if os.environ["RANK"] == "1" else 0.005)
    return plain.compute_loss(model, batch)
"""


def of_two(model, settings, **options):
    return replace(job_for(model, settings, **options), processes=2)


def test_settings_of_the_exchange_are_measured_and_read_back(tmp_path):
    measured(run_child(tmp_path, of_two(WORKLOADS / "batch_norm.py", EXCHANGE)))
    assert nobody_is_left(tmp_path)


def test_a_setting_of_several_processes_is_not_in_force_in_one(tmp_path):
    outcome = run_child(tmp_path, job_for(WORKLOADS / "plain.py", {"ddp_bucket_mb": 1}))
    assert outcome == outcomes.NotApplied("ddp_bucket_mb", "1", "null")


def gated(folder, model, dtype, **settings):
    reference = TrainingConfig.of({**SETTINGS, **settings})
    job = job_for(
        model, {**settings, "ddp_comm_dtype": dtype}, Gate(reference.as_dict(), in_double=False)
    )
    return ended_as(outcomes.Gated, run_child(folder, replace(job, processes=2)))


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_usual_size_are_rounded_and_no_more(dtype, tmp_path):
    found = gated(tmp_path, WORKLOADS / "batch_norm.py", dtype)
    assert numerics_fault(found, lower_precision=True) is None
    assert found.gradient_error < 0.01
    assert found.gradient_error > 0


@pytest.mark.long
def test_gradients_that_vanish_in_float16_are_a_fault(tmp_path):
    loss = "def compute_loss(model, batch):\n    return 1e-9 * plain.compute_loss(model, batch)\n"
    found = gated(tmp_path, model_of(tmp_path, loss), "float16")
    fault = numerics_fault(found, lower_precision=True)
    assert "gradients differ" in fault.reason


def formats_of(folder, name):
    job = of_two(WORKLOADS / name, {}, task=Inspect())
    outcome = ended_as(outcomes.Inspected, run_child(folder, replace(job, config=None)))
    return outcome.workload.comm_dtypes


@pytest.mark.long
def test_the_formats_of_an_exchange_are_asked_of_the_backend(tmp_path):
    found = formats_of(tmp_path, "batch_norm.py")
    # The backend was asked. Some builds of torch have no hook for bfloat16 on a CPU.
    assert "float16" in found


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, {"accumulation_steps": 2}])
def test_the_flops_of_a_sample_are_counted_in_each_process(settings, tmp_path):
    job = job_for(WORKLOADS / "batch_norm.py", settings, CountFlops())
    found = ended_as(outcomes.CountedFlops, run_child(tmp_path, replace(job, processes=2)))
    assert nobody_is_left(tmp_path)
    assert found.flops_per_sample
    assert found.matmul_flops_per_second


@pytest.mark.long
def test_stages_of_the_users_settings_are_of_all_processes(tmp_path):
    model = model_of(tmp_path, SLOW)
    job = job_for(model, task=Diagnose(replace(PLAN, block_counts=(3,)), workers=(0, 1)))
    found = ended_as(outcomes.Diagnosed, run_child(tmp_path, replace(job, processes=2)))
    assert (found.processes, found.samples) == (2, 16)
    assert found.compute_seconds > 0.02, "of the slower one, for each batch"
    assert found.exchange_seconds is not None
    assert [one.num_workers for one in found.loading] == [0, 1]
