"""Stages timed and steps profiled by real children."""

import re
from pathlib import Path

import pytest

from autotune.configuration.job import Diagnose
from autotune.values.outcome import Diagnosed, UserError
from children import QUICK, WORKLOADS, autotune, ended_as, hurried, job_for


@pytest.fixture
def diagnosed(runner, tmp_path):
    def diagnose(workload, workers=(0,), **settings):
        job = job_for(WORKLOADS / f"{workload}.py", settings, Diagnose(QUICK, workers))
        return runner.run(job, tmp_path / "trial")

    return diagnose


@pytest.mark.parametrize("workload", ["plain", "nested_batches", "stream"])
def test_every_stage_takes_some_time(diagnosed, workload):
    found = ended_as(Diagnosed, diagnosed(workload, workers=(0, 1)))
    assert [one.num_workers for one in found.loading] == [0, 1]
    seconds = [found.compute_seconds, found.optimizer_seconds, *(o.seconds for o in found.loading)]
    assert min(seconds) > 0
    assert found.optimizer_seconds < found.compute_seconds
    assert found.transfer_seconds == 0, "nothing is copied on a CPU"
    assert found.launch_seconds is None, "nor told ahead"


def test_a_loader_that_sleeps_is_seen_to(diagnosed):
    found = diagnosed("paced_loader", batch_size=4)
    assert found.loading[0].seconds == pytest.approx(4 * 0.002, rel=0.5)
    assert found.loading[0].seconds > 3 * found.compute_seconds


def test_a_dataset_of_one_batch_is_loaded_all_the_same(diagnosed):
    many, one = diagnosed("plain", batch_size=8), diagnosed("plain", batch_size=256)
    assert one.loading[0].seconds > 3 * many.loading[0].seconds, "it has 32 times the samples"


def test_a_batch_of_twice_the_size_may_not_exist(diagnosed):
    assert diagnosed("plain", batch_size=8).double_compute_seconds > 0
    assert diagnosed("plain", batch_size=256).double_compute_seconds is None


def test_settings_that_fail_are_a_failure(diagnosed):
    assert isinstance(diagnosed("wrong_shapes"), UserError)


def test_a_profile_sees_the_loader_of_a_model_py_work(runner, tmp_path):
    workload = WORKLOADS / "paced_loader.py"
    job = job_for(workload, {"batch_size": 4}, Diagnose(QUICK, (0,), watch_seconds=0.5))
    found = ended_as(Diagnosed, runner.run(job, tmp_path / "trial")).profiled
    assert found.wait_seconds > 0.5 * found.seconds
    assert found.spent.keys() == {"loading"}
    assert max(found.spent["loading"], key=found.spent["loading"].get).startswith(
        "paced_loader.py:"
    )
    assert found.operators > 10


def test_the_profile_command_says_what_bounds_training(tmp_path):
    done = hurried(tmp_path, "profile", WORKLOADS / "paced_loader.py", "--space", "quick")
    assert done.returncode == 0, done.stderr
    assert "the bottleneck is loading; by itself" in done.stdout
    assert re.search(r"training reaches [\d.]+ samples/s, \d+ % of loading by", done.stdout)
    assert re.search(r"^ +\d+ %  waiting for data: num_workers=0, paced_lo", done.stdout, re.M)
    assert done.stdout.endswith(f"next: autotune search {WORKLOADS / 'paced_loader.py'}\n")
    assert len(done.stdout.splitlines()) <= 25


@pytest.mark.keeps_log
def test_a_profile_of_what_does_not_train_says_why(tmp_path):
    model = tmp_path / "broken.py"
    text = (WORKLOADS / "plain.py").read_text()
    model.write_text(text.replace("return functional.cross", "raise ValueError('no loss')  #"))
    done = autotune(tmp_path, "profile", model)
    assert done.returncode == 4
    assert "no loss" in done.stderr
    assert "Traceback" not in done.stderr
    log = done.stderr.partition("Whole log: ")[2].strip()
    assert "ValueError: no loss" in Path(log).read_text()
