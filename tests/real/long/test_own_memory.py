"""The memory that autotune adds is below that of training, or it says how much it needs."""

from functools import cache

import pytest

from autotune.configuration.job import Gate, Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.process.common.trial_folder import EVALUATION, NUMERICS_CHECK
from autotune.values.outcome import Gated, OutOfMemory, Probed, describe
from children import (
    SETTINGS,
    WORKLOADS,
    ended_as,
    job_for,
    measured,
    run_child,
    start_hurried,
)
from factories import written
from scripted_runner import ScriptedRunner, at, events_of, options_in

MIB = 1 << 20


@pytest.fixture(scope="module")
def trained_mib(runner, tmp_path_factory):
    """The peak memory of a workload's training here, in MiB; torch alone takes 300 to 700."""
    folder = tmp_path_factory.mktemp("trained")

    @cache
    def peak(workload):
        run = measured(runner.run(job_for(WORKLOADS / f"{workload}.py"), folder / "trial"))
        return run.peak_memory_bytes // MIB

    return peak


@pytest.fixture
def gate(runner, tmp_path):
    def run(workload, limit_mib, in_double=True):
        task = Gate(TrainingConfig.of(SETTINGS).as_dict(), in_double)
        settings = {"optimizer_impl": "fused"}
        path = WORKLOADS / f"{workload}.py"
        job = job_for(path, settings, task, memory_limit_bytes=limit_mib * MIB)
        return runner.run(job, tmp_path / "trial")

    return run


@pytest.mark.long
def test_a_search_whose_held_out_samples_do_not_fit_into_memory_ends_with_an_answer(
    tmp_path, trained_mib
):
    """They take 1 GiB."""
    space = written(tmp_path, "num_workers: [0, 1]\n", "space.yaml")
    limit = f"{trained_mib('large_samples') + 350}MiB"
    limits = ("--trials", "2", "--memory-limit", limit, "--progress", "plain")
    model = WORKLOADS / "large_samples.py"
    process = start_hurried(tmp_path, "search", model, "--space", space, *limits)
    code = process.wait(timeout=200)
    told = (tmp_path / "stderr.txt").read_text()
    assert code == 0, told
    assert list(tmp_path.glob("studies/*/best.yaml"))


@pytest.mark.parametrize(
    ("workload", "beyond_mib"), [("large_samples", 100), ("many_parameters", 150)]
)
def test_numerics_are_compared_in_the_memory_that_training_takes(
    workload, beyond_mib, gate, trained_mib
):
    found = ended_as(Gated, gate(workload, trained_mib(workload) + beyond_mib))
    assert found.in_double


def test_a_comparison_without_float64_fits_where_one_with_it_passes_the_limit(gate):
    found = ended_as(OutOfMemory, gate("large_in_double", 800))
    assert found.during == NUMERICS_CHECK
    assert "during numerical check (not during training)" in describe(found)
    assert isinstance(gate("large_in_double", 800, in_double=False), Gated)


def test_held_out_samples_of_a_stream_are_not_kept_in_memory(runner, tmp_path, trained_mib):
    source = (
        f"import sys\nsys.path.insert(0, {str(WORKLOADS)!r})\n"
        "from large_samples import *\n"
        "from torch.utils.data import IterableDataset\n"
        "class Stream(IterableDataset):\n"
        "    def __iter__(self):\n"
        "        planes = Planes()\n"
        "        return (planes[place] for place in range(400))\n"
        "def build_dataset():\n"
        "    return Stream()\n"
    )
    model = written(tmp_path, source, "model.py")
    limit = (trained_mib("large_samples") + 150) * MIB  # those held out take 1 GiB
    job = job_for(model, task=Probe(64, (0,), 8), memory_limit_bytes=limit)
    assert isinstance(runner.run(job, tmp_path / "trial"), Probed)


GUESSES = """
import torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

def build_model():
    return nn.Linear(8, 2)

def build_dataset():
    torch.manual_seed(0)
    return TensorDataset(torch.randn(555, 8), torch.randint(2, (555,)))

def compute_loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
STREAM = """
class Stream(IterableDataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return iter([self.dataset[place] for place in range(555)])

def build_dataset(build_map_style=build_dataset):
    return Stream(build_map_style())
"""


@pytest.mark.parametrize("source", [GUESSES, GUESSES + STREAM], ids=["map-style", "stream"])
def test_a_smaller_last_batch_counts_by_its_samples(source, runner, tmp_path):
    model = written(tmp_path, source, "model.py")
    qualities = []
    for evaluation_batch in (54, 300):
        job = job_for(model, task=Probe(64, (0, 1), evaluation_batch))
        outcome = ended_as(Probed, runner.run(job, tmp_path / "trial"))
        qualities.append(outcome.qualities)
    assert qualities[0] == pytest.approx(qualities[1], rel=1e-5)
    assert qualities[0][0] != qualities[0][1]


@pytest.mark.parametrize("threads", [1, 2], ids=["passes the limit", "raises"])
def test_memory_that_runs_out_in_evaluate_is_told_as_such(threads, runner, tmp_path):
    job = job_for(
        WORKLOADS / "evaluates_large.py",
        {"num_threads": threads},
        Probe(64, (0,)),
        memory_limit_bytes=700 * MIB,
    )
    outcome = ended_as(OutOfMemory, runner.run(job, tmp_path / "trial"))
    assert "during evaluation (not during training)" in describe(outcome)


def test_memory_that_runs_out_in_training_is_not_told_as_evaluation(tmp_path):
    job = job_for(
        WORKLOADS / "host_hog.py",
        {"batch_size": 64},
        Probe(256, (0,)),
        memory_limit_bytes=900 * MIB,
    )
    outcome = ended_as(OutOfMemory, run_child(tmp_path, job))
    assert outcome.during == ""


def test_a_baseline_that_cannot_be_evaluated_is_told_what_to_do(tmp_path):
    def instead(_, outcome):
        full = OutOfMemory("host", "full", during=EVALUATION)
        return full if outcome.kind == "probed" else outcome

    events = events_of(options_in(tmp_path), ScriptedRunner(instead=instead))
    (reason,) = events[-1].reasons
    assert "during evaluation (not during training)" in reason
    assert "fewer samples at a time in evaluate(model, device)" in reason


def test_every_probe_evaluates_in_the_baselines_batches(tmp_path):
    runner = ScriptedRunner(lambda config, phase: at(config["batch_size"]))
    events_of(options_in(tmp_path), runner)
    probes = [job for job in runner.jobs if isinstance(job.task, Probe)]
    assert len({job.config["batch_size"] for job in probes}) > 1
    assert {job.task.evaluation_batch for job in probes} == {8}
