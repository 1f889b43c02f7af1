"""Two processes that train together, in each way of starting them, and under `autotune run`."""

import shlex
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from asked_scripts import LONG, SCRIPTS
from autotune.configuration.best_config import write_best
from autotune.configuration.job import Inspect, Job, Measure, Observe, Probe
from autotune.configuration.script import Script
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Inspected, Measured, Observed, Probed, Rejected
from children import (
    QUICK,
    WORKLOADS,
    completed,
    ended_as,
    job_for,
    measured,
    model_of,
    nobody_is_left,
    run_child,
    succeeded,
)
from factories import best_config, written
from needs import installed
from tiers import late

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(sys.executable).parent
TORCHRUN = f"{PROGRAMS / 'torchrun'} --standalone --nproc-per-node 2"
ACCELERATE = (
    f"{PROGRAMS / 'accelerate'} launch --multi_gpu --num_processes 2 --num_machines 1 "
    "--mixed_precision no --dynamo_backend no"
)
# Starts its ranks in the words of MPI, as programs, and waits for both.
MPI = """#!/bin/bash
for rank in 0 1; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$rank \\
        MASTER_ADDR=127.0.0.1 MASTER_PORT={port} "$@" &
done
wait -n || exit 1
wait -n
"""
MODEL, SCRIPT = "a model.py", "a script"


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """A function that returns the command of a launcher of the user's; empty for torch's own."""

    def command(name):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
        match name:
            case "torch's":
                return ()
            case "torchrun":
                return tuple(shlex.split(TORCHRUN))
            case "accelerate":
                installed("accelerate")
                return tuple(shlex.split(ACCELERATE))
        text = MPI.replace("{port}", port)
        if name == "MPI without a place to meet":
            lines = (line for line in MPI.splitlines() if "MASTER" not in line)
            text = "\n".join(lines).replace("\\\n", '"$@" &\n')
        path = written(tmp_path, text, "mpi")
        path.chmod(0o755)
        return (str(path),)

    return command


def of_two(model, *arguments, **options):
    return replace(job_for(model, *arguments, **options), processes=2)


def of_script(task):
    reads = ("num_workers", "prefetch_factor") if isinstance(task, Measure) else ()
    config = {"num_workers": 1, "num_threads": 1} if reads else None
    return Job(
        task,
        "cpu" if reads else "auto",
        str(SCRIPTS / "ddp_loop.py"),
        config=config,
        script=Script(LONG, reads),
        deadline_seconds=180.0,
        processes=2,
    )


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        (MODEL, "torch's"),
        late(MODEL, "MPI"),
        late(MODEL, "accelerate"),
        (SCRIPT, "torch's"),
        late(SCRIPT, "torchrun"),
    ],
)
def test_two_processes_are_timed_as_one_training(workload, name, launcher, tmp_path):
    job = of_two(WORKLOADS / "plain.py") if workload == MODEL else of_script(Measure(QUICK))
    words = launcher(name)
    outcome = ended_as(Measured, run_child(tmp_path, replace(job, launch=words), warm=True))
    assert nobody_is_left(tmp_path)
    found = outcome.measurement
    step = 16 if workload == MODEL else 32
    assert {block.samples % step for block in found.blocks} == {0}, "samples of both ranks"
    assert workload == MODEL or found.epoch_samples == 512
    trial = tmp_path / "trial"
    by = shlex.join(words) if words else "torch's launcher"
    assert (trial / "launch").read_text() == f"started by {by}\n"
    names = {file.name for file in trial.iterdir()}
    assert {"outcome.json", "stderr.log", "stderr.rank1.log"} <= names
    assert "outcome.rank1.json" not in names


@pytest.mark.parametrize(
    ("workload", "name"),
    [(SCRIPT, "torch's"), late(MODEL, "torchrun"), late(SCRIPT, "torchrun")],
)
def test_they_are_counted_before_the_first_trial(workload, name, launcher, tmp_path):
    job = replace(of_two(WORKLOADS / "plain.py", task=Inspect()), config=None)
    if workload == SCRIPT:
        job = of_script(Observe(loss_seconds=1.0, source="x"))
    words = launcher(name)
    seen = run_child(tmp_path, replace(job, launch=words, processes=0 if words else 2))
    assert isinstance(seen, Inspected | Observed), seen
    assert nobody_is_left(tmp_path)
    assert seen.processes == 2
    if isinstance(seen, Observed):
        assert seen.samples_per_second == pytest.approx(2 * 16 * seen.steps_per_second)
        assert seen.workload.baseline["batch_size"] == 16, "of each process"
        assert seen.loss is not None
        assert seen.loss.doubt == ""
        assert seen.workload.comm_dtypes is not None
        assert "ddp_bucket_mb" not in seen.fixed


@pytest.mark.long
def test_a_launcher_without_a_place_to_meet_is_refused_with_what_to_do(launcher, tmp_path):
    job = of_two(WORKLOADS / "plain.py")
    outcome = run_child(tmp_path, replace(job, launch=launcher("MPI without a place to meet")))
    assert isinstance(outcome, Rejected), outcome
    assert "the launcher does not set MASTER_ADDR and MASTER_PORT" in outcome.detail


def test_a_probe_of_two_ranks_has_a_quality_for_each_seed(tmp_path):
    task = Probe(samples=256, seeds=(0, 1), untrained=True)
    outcome = ended_as(Probed, run_child(tmp_path, of_two(WORKLOADS / "plain.py", task=task)))
    assert len(outcome.qualities) == 2
    assert min(outcome.qualities) > (outcome.untrained or 0.0)


def test_two_ranks_begin_alike_draw_apart_and_exchange_gradients_once_a_step(tmp_path):
    lines = (
        "def build_model():\n"
        "    model = plain.build_model()\n"
        "    print('begins', float(model.weight.sum()), flush=True)\n"
        "    return model\n"
        "def compute_loss(model, batch):\n"
        "    print('draws', float(plain.torch.rand(1)), 'exchanges',\n"
        "          model.require_backward_grad_sync, flush=True)\n"
        "    print('first', float(batch[0].sum()), flush=True)\n"
        "    return plain.compute_loss(model, batch)\n"
        "def build_optimizer(parameters, **options):\n"
        "    optimizer = plain.build_optimizer(parameters, **options)\n"
        "    own = list(optimizer.param_groups[0]['params'])\n"
        "    optimizer.register_step_post_hook(\n"
        "        lambda *_: print('weights', float(own[0].sum()), flush=True))\n"
        "    return optimizer\n"
    )
    measured(run_child(tmp_path, of_two(model_of(tmp_path, lines), {"accumulation_steps": 2})))
    logs = [(tmp_path / "trial" / f"stdout{rank}.log").read_text() for rank in ("", ".rank1")]

    def said(word):
        return [[line for line in log.splitlines() if line.startswith(word)] for log in logs]

    begins, draws, first, weights = map(said, ("begins", "draws", "first", "weights"))
    assert begins[0] == begins[1]
    assert weights[0][:5] == weights[1][:5], "gradients are those of both"
    assert first[0][0] != first[1][0], "each has samples of its own"
    assert draws[0][0].split()[1] != draws[1][0].split()[1]
    assert [line.split()[3] for line in draws[0][:4]] == ["False", "True", "False", "True"]


SCRIPT_RUN = """
import sys
import time
from torch import distributed, nn, ones, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

distributed.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(8, 2))
optimizer = optim.SGD(model.parameters(), 0.1)
for (batch,) in DataLoader(TensorDataset(ones(64, 8)), batch_size=8):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
sys.stdout.write(f"{model.bucket_bytes_cap >> 20} MiB, views {model.gradient_as_bucket_view}\\n")
distributed.destroy_process_group()
time.sleep(0.5)  # a process that ends at once may be aborted by gloo's own threads
"""
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
RUN = ("-m", "autotune", "run", "best.yaml")


@pytest.mark.parametrize(
    "words", [(*LAUNCHER, *RUN, "train.py"), late((*RUN, "--nproc-per-node", "2", "train.py"))]
)
def test_ddp_has_the_settings_of_the_file_in_each_process(words, tmp_path):
    settings = {"batch_size": 8, "ddp_bucket_mb": 50, "gradient_as_bucket_view": True}
    best = best_config(TrainingConfig.of(settings), TrainingConfig.of({"batch_size": 8}))
    write_best(best.model_copy(update={"processes": 2}), tmp_path / "best.yaml")
    written(tmp_path, SCRIPT_RUN, "train.py")
    done = succeeded(completed(tmp_path, [sys.executable, *words]))
    assert done.stdout.splitlines().count("50 MiB, views True") == 2
    settings = "ddp_bucket_mb=50, gradient_as_bucket_view=true"
    assert done.stderr.count(f"autotune: applied: {settings}") == 1, "once, not by each process"
    assert done.stderr.count("best.yaml was made for something else") == 1
    assert "processes:" not in done.stderr
    assert "Traceback" not in done.stderr
