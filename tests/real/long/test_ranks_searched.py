"""Searches whose trials are two processes, of a model.py, of a script and under a launcher."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from asked_scripts import SCRIPTS
from autotune.configuration.best_config import read_best
from autotune.configuration.training_config import TrainingConfig
from children import WORKLOADS, autotune, completed, hurried, nobody_is_left, succeeded
from factories import written

MODEL = Path(__file__).parents[3] / "studies" / "digits_cnn" / "model.py"
TORCHRUN = f"{Path(sys.executable).parent / 'torchrun'} --standalone --nproc-per-node 2"
IN_EACH = r"processes +2, \d+ samples a step: batch_size \d+ in each"
TWO = ("--nproc-per-node", "2")
FLAGS = ("--space", "space.yaml", "--trials", "3", "--study", "s")
LONG = ("--", "--epochs", "100000", "--read-seconds", "0.002", "--width", "50000")
OF_MODEL = "batch_size: [32, 128]\nnum_threads: [1, 2]\n"
OF_SCRIPT = "num_workers: [0, 1]\nddp_bucket_mb: [null, 5]\n"
MISMATCH = 6
PRODUCTION = """
import sys
import autotune
sys.path.insert(0, sys.argv[1])
import model
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

distributed.init_process_group("gloo")
best = autotune.load("studies/s/best.yaml", strict=True, model=sys.argv[1] + "/model.py")
best.apply_to_process()
device = torch.device("cpu")
trained = best.wrap(best.prepare(model.build_model()))
assert isinstance(trained, DistributedDataParallel)
optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, **best.optimizer_kwargs())
dataset = model.build_dataset()
sampler = DistributedSampler(dataset, drop_last=True)
for batch in best.batches(best.loader(dataset, sampler=sampler), device):
    with best.autocast(device):
        model.compute_loss(trained, batch).backward()
    optimizer.step()
    optimizer.zero_grad()
rank, size = distributed.get_rank(), distributed.get_world_size()
print(f"rank {rank} of {size}: {len(batch[1])}\\n", end="", flush=True)
"""


class Searched(NamedTuple):
    """A finished search."""

    folder: Path
    done: subprocess.CompletedProcess[str]

    @property
    def path(self):
        return self.folder / "studies" / "s" / "best.yaml"

    @property
    def best(self):
        return read_best(self.path)


def searched(folder, space, *words):
    written(folder, space)
    done = succeeded(hurried(folder, "search", *words))
    assert nobody_is_left(folder)
    return Searched(folder, done)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return searched(tmp_path_factory.mktemp("model"), OF_MODEL, MODEL, *TWO, *FLAGS)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("script")
    shutil.copy(SCRIPTS / "ddp_loop.py", folder / "train.py")
    return searched(folder, OF_SCRIPT, "train.py", *TWO, *FLAGS, *LONG)


def launched(folder, processes):
    path = written(folder, PRODUCTION, "train.py")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
    return completed(folder, [sys.executable, *launcher, path, MODEL.parent])


def test_a_model_is_searched_to_a_confirmed_answer_of_two_processes(model):
    best, done = model.best, model.done
    assert best.processes == 2
    assert best.config["num_threads"] == 1, "each has one of two cores"
    assert "2 processes per trial" in done.stderr
    assert re.search(IN_EACH, done.stdout)
    assert "num_threads=2 dropped" in done.stderr
    if best.keeps_baseline:
        assert best.evidence.speedup.ci95 == (1.0, 1.0)
    else:
        assert best.evidence.speedup.ci95[0] > 1
        assert best.evidence.speedup.rounds >= 2
    assert re.search(IN_EACH, autotune(model.folder, "report", "s").stdout)


def test_a_script_is_searched_to_a_confirmed_answer_of_two_processes(script):
    best, done = script.best, script.done
    assert best.processes == 2
    assert best.config["num_workers"] == 1, "its disk is slow"
    assert best.evidence.speedup.ci95[0] > 1
    assert best.evidence.speedup.rounds >= 2
    assert "2 processes per trial" in done.stderr
    assert (
        "command: python train.py --epochs 100000 --read-seconds 0.002 --width 50000, in each of 2"
        in done.stderr
    )
    assert "2, 32 samples a step: batch_size 16 in each" in done.stdout


def test_the_same_command_continues_and_one_of_another_number_does_not(model, script):
    succeeded(hurried(script.folder, "search", "train.py", *TWO, *FLAGS, *LONG))
    alone = hurried(script.folder, "search", "train.py", *FLAGS, *LONG)
    assert alone.returncode != 0
    assert "give --nproc-per-node N" in alone.stderr
    other = hurried(model.folder, "search", MODEL, *FLAGS)
    assert other.returncode == MISMATCH
    assert "processes: 2 in the study" in other.stderr


def test_a_script_of_one_s_own_trains_with_the_settings_under_torch_s_launcher(model):
    done = succeeded(launched(model.folder, 2))
    size = model.best.config["batch_size"]
    assert {f"rank {rank} of 2: {size}" for rank in range(2)} <= set(done.stdout.splitlines())
    alone = launched(model.folder, 1)
    assert alone.returncode != 0
    assert "processes: 2 in the file, 1 here" in alone.stderr


@pytest.mark.long
def test_it_is_compared_in_as_many_processes_as_the_file_says(script):
    words = ("compare", "train.py", script.path)
    done = succeeded(autotune(script.folder, *words, "--rounds", "6", "--json", *LONG))
    assert '"ratio"' in done.stdout
    three = TORCHRUN.replace("per-node 2", "per-node 3")
    refused = autotune(script.folder, *words, "--launcher", three, *LONG)
    assert refused.returncode == 2
    assert "the launcher started 3 processes, and 2 before" in refused.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_search_under_a_launcher_reaches_an_answer_and_goes_on(tmp_path):
    shutil.copy(WORKLOADS / "plain.py", tmp_path / "plain.py")
    flags = ("--space", "space.yaml", "--trials", "2", "--accuracy-samples", "256", "--study", "s")
    words = ("plain.py", "--launcher", TORCHRUN, *flags)
    found = searched(tmp_path, "batch_size: [8, 32]\n", *words)
    assert f"2 processes per trial, started by {TORCHRUN}" in found.done.stderr
    assert found.best.processes == 2
    succeeded(hurried(tmp_path, "search", *words))
    other = hurried(tmp_path, "search", "plain.py", *flags)
    assert "processes: 2 in the study" in other.stderr


@pytest.mark.long
def test_two_processes_keep_the_effective_batch_in_every_trial_and_in_a_run(tmp_path):
    space = "batch_size: [16, 32, 64]\nnum_threads: [1]\n"
    flags = ("--effective-batch", "keep", "--baseline", "batch_size=64")
    found = searched(tmp_path, space, MODEL, *TWO, *FLAGS, *flags)
    assert "2 processes: a step takes 128 samples, 64 in each" in found.done.stderr
    jobs = [json.loads(path.read_text()) for path in tmp_path.glob("studies/s/trials/0*/job.json")]
    tried = [TrainingConfig.of(job["config"]) for job in jobs]
    assert {job["processes"] for job in jobs} == {2}
    assert {config["batch_size"] for config in tried} >= {16, 32}
    assert {config.effective_batch for config in tried} == {64}
    best = found.best
    assert (best.processes, best.training_config.effective_batch) == (2, 64)
    assert best.evidence.baseline.config["batch_size"] == 64
    script = written(tmp_path, "import sys\nprint(*sys.argv[1:])\n", "says.py")
    maps = ("--map", "batch_size=--bs", "--map", "accumulation_steps=--steps")
    ran = autotune(tmp_path, "run", *TWO, *maps, found.path, script, "--bs", "1", "--steps", "64")
    assert ran.returncode == 0, ran.stderr
    size, count = best.config["batch_size"], best.config["accumulation_steps"]
    assert ran.stdout.splitlines() == [f"--bs {size} --steps {count}"] * 2
