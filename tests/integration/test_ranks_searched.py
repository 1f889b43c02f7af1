"""A search whose trials are two processes, to a confirmed answer, and production with it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.configuration.best_config import read_best
from autotune.configuration.training_config import TrainingConfig
from children import autotune, hurried, nobody_is_left
from factories import written

pytestmark = pytest.mark.slow

MODEL = Path(__file__).parents[2] / "studies" / "digits_cnn" / "model.py"
SPACE = "batch_size: [32, 128]\nnum_threads: [1, 2]\n"
TWO = ("--nproc-per-node", "2")
FLAGS = ("--space", "space.yaml", "--trials", "3", "--study", "digits")
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
best = autotune.load("studies/digits/best.yaml", strict=True, model=sys.argv[1] + "/model.py")
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


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A folder with a finished search, and the search's command."""
    folder = tmp_path_factory.mktemp("two")
    written(folder, SPACE)
    done = hurried(folder, "search", MODEL, *TWO, *FLAGS)
    assert done.returncode == 0, done.stderr
    assert nobody_is_left(folder)
    return folder, done


def launched(folder: Path, processes: int) -> subprocess.CompletedProcess[str]:
    script = written(folder, PRODUCTION, "train.py")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
    return subprocess.run(
        [sys.executable, *launcher, str(script), str(MODEL.parent)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_two_processes_are_searched_to_a_confirmed_answer(searched):
    folder, done = searched
    best = read_best(folder / "studies" / "digits" / "best.yaml")
    assert best.processes == 2
    assert best.config["num_threads"] == 1, "each has one of two cores"
    assert "2 processes in each trial" in done.stderr
    assert "2 processes, a step of" in done.stdout
    assert "num_threads=2 dropped" in done.stderr
    assert best.keeps_baseline or best.evidence.speedup.rounds >= 2


def test_the_report_says_how_many_processes_trained(searched):
    folder, _ = searched
    assert "2 processes, a step of" in autotune(folder, "report", "digits").stdout


def test_the_study_does_not_go_on_with_another_number_of_processes(searched):
    folder, _ = searched
    again = hurried(folder, "search", MODEL, *FLAGS)
    assert again.returncode == MISMATCH
    assert "processes: 2 in the study" in again.stderr


def test_a_script_of_one_s_own_trains_with_the_settings_under_torch_s_launcher(searched):
    folder, _ = searched
    size = read_best(folder / "studies" / "digits" / "best.yaml").config["batch_size"]
    done = launched(folder, 2)
    assert done.returncode == 0, done.stderr
    assert {f"rank {rank} of 2: {size}" for rank in range(2)} <= set(done.stdout.splitlines())


def test_a_script_in_one_process_is_told_of_the_world_size(searched):
    folder, _ = searched
    done = launched(folder, 1)
    assert done.returncode != 0
    assert "processes: 2 in the file, 1 here" in done.stderr


def test_run_starts_a_script_in_as_many_processes(searched):
    folder, _ = searched
    source = (
        "import os, sys, torch\n"
        "sys.stdout.write('rank {RANK} of {WORLD_SIZE}\\n'.format(**os.environ))\n"
    )
    written(folder, source, "says.py")
    done = autotune(folder, "run", "studies/digits/best.yaml", *TWO, "says.py")
    assert done.returncode == 0, done.stderr
    assert {"rank 0 of 2", "rank 1 of 2"} <= set(done.stdout.splitlines())
    assert "processes:" not in done.stderr


@pytest.mark.long
def test_two_processes_keep_the_effective_batch_in_every_trial_and_in_a_run(tmp_path):
    written(tmp_path, "batch_size: [16, 32, 64]\nnum_threads: [1]\n")
    flags = ("--effective-batch", "keep", "--baseline", "batch_size=64")
    done = hurried(tmp_path, "search", MODEL, *TWO, *FLAGS, *flags)
    assert done.returncode == 0, done.stderr
    assert "2 processes: a step of all has 128 samples, 64 in each" in done.stderr
    jobs = [
        json.loads(path.read_text()) for path in tmp_path.glob("studies/digits/trials/0*/job.json")
    ]
    tried = [TrainingConfig.of(job["config"]) for job in jobs]
    assert {job["processes"] for job in jobs} == {2}
    assert {config["batch_size"] for config in tried} >= {16, 32}
    assert {config.effective_batch for config in tried} == {64}
    path = tmp_path / "studies" / "digits" / "best.yaml"
    best = read_best(path)
    assert (best.processes, best.training_config.effective_batch) == (2, 64)
    assert best.evidence.baseline.config["batch_size"] == 64
    script = written(tmp_path, "import sys\nprint(*sys.argv[1:])\n", "says.py")
    maps = ("--map", "batch_size=--bs", "--map", "accumulation_steps=--steps")
    ran = autotune(tmp_path, "run", *TWO, *maps, path, script, "--bs", "1", "--steps", "64")
    assert ran.returncode == 0, ran.stderr
    size, count = best.config["batch_size"], best.config["accumulation_steps"]
    assert ran.stdout.splitlines() == [f"--bs {size} --steps {count}"] * 2
