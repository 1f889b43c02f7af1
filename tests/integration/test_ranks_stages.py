"""Stages and arithmetic of two real processes."""

from dataclasses import replace

import pytest

from autotune.configuration.job import CountFlops, Diagnose, MeasurePlan
from autotune.values.outcome import CountedFlops, Diagnosed, describe, slow_rank
from children import WORKLOADS, autotune, job_for, nobody_is_left, run_child
from factories import written

PLAN = MeasurePlan(warmup_steps=1, block_seconds=0.05, looks=(6,), max_seconds=3.0)
SLOW = """
import os, sys, time
sys.path.insert(0, {workloads!r})
import plain
from plain import build_dataset, build_model, build_optimizer
def compute_loss(model, batch):
    time.sleep(0.02 if os.environ["RANK"] == "1" else 0.005)
    return plain.compute_loss(model, batch)
"""
TOO_LARGE = """
import os, sys
sys.path.insert(0, {workloads!r})
import torch
import plain
from plain import build_dataset, build_model, build_optimizer
def compute_loss(model, batch):
    if os.environ["RANK"] == "1" and (len(batch[1]) > 8 or torch.is_autocast_enabled("cpu")):
        raise RuntimeError("out of memory, says rank 1")
    return plain.compute_loss(model, batch)
"""


@pytest.mark.parametrize("settings", [{}, {"accumulation_steps": 2}, {"sharding": "fsdp"}])
def test_the_flops_of_a_sample_are_counted_in_each_process(settings, tmp_path):
    job = job_for(WORKLOADS / "batch_norm.py", settings, CountFlops())
    found = run_child(tmp_path, replace(job, processes=2))
    assert isinstance(found, CountedFlops), describe(found)
    assert nobody_is_left(tmp_path)
    assert found.flops_per_sample
    assert found.matmul_flops_per_second


def test_what_one_rank_cannot_do_is_left_out_by_all(tmp_path):
    model = written(tmp_path, TOO_LARGE.format(workloads=str(WORKLOADS)), "model.py")
    job = job_for(model, task=Diagnose(replace(PLAN, looks=(3,)), workers=(0,), bfloat16=True))
    found = run_child(tmp_path, replace(job, processes=2))
    assert isinstance(found, Diagnosed), describe(found)
    assert found.compute_seconds > 0
    assert (found.double_compute_seconds, found.bfloat16_compute_seconds) == (None, None)


def test_stages_of_the_users_settings_are_of_all_processes(tmp_path):
    model = written(tmp_path, SLOW.format(workloads=str(WORKLOADS)), "model.py")
    job = job_for(model, task=Diagnose(replace(PLAN, looks=(3,)), workers=(0, 1)))
    found = run_child(tmp_path, replace(job, processes=2))
    assert isinstance(found, Diagnosed), describe(found)
    assert (found.processes, found.samples) == (2, 16)
    assert found.compute_seconds > 0.02, "of the slower one, for each batch"
    assert found.compute_seconds < 0.2
    assert found.exchange_seconds is not None
    assert [one.num_workers for one in found.loading] == [0, 1]
    slow = slow_rank(found.rank_seconds)
    assert slow is not None
    assert slow.rank == 1


@pytest.mark.slow
def test_a_profile_names_the_exchange_and_the_rank_that_others_wait_for(tmp_path):
    model = written(tmp_path, SLOW.format(workloads=str(WORKLOADS)), "model.py")
    trace = tmp_path / "trace.json"
    flags = ("--nproc-per-node", "2", "--device", "cpu", "--trace", trace)
    done = autotune(tmp_path, "profile", model, *flags)
    assert done.returncode == 0, done.stderr
    assert "Exchanging gradients takes" in done.stdout
    assert "Rank 1 computes" in done.stdout
    assert trace.is_file()
