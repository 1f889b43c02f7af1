"""Every whole command line of README and docs is run, or marked here with what it needs.

Lines with placeholders (MODEL, [OPTIONS], a lone name) are forms, not command lines. A search runs
as far as its plan; `test_search` and others run whole ones. Measurements are cut short.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from children import WORKLOADS, autotune, hurried
from documented_lines import LINES
from factories import best_config, found_here, written

GOLDEN = Path(__file__).parents[1] / "goldens/studies/finished"
ELSEWHERE = {
    "dashboard digits_cnn": "is served until Ctrl-C: test_dashboard.py",
    "knobs --check model.py": "knobs in model.py: test_documented_code.py",
    'search model.py --launcher "mpirun -n 4 --hostfile hosts"': "MPI, hosts: test_ranks.py",
    'search train.py --launcher "srun --ntasks 16" -- --epochs 90': "Slurm: by hand, cluster.md",
    'search train.py --launcher "srun --ntasks=16 --cpus-per-task=8 --kill-on-bad-exit=1"': "Slurm",
    "search train.py --launcher /path/to/the/clone/examples/cluster/torchrun_on_hosts.sh "
    "-- --epochs 90": "several hosts: test_ranks.py",
    "search model.py --device cuda:0,cuda:1": "two GPUs",
    "search model.py --device cpu:0-3,cpu:4-7": "eight cores: test_script_devices.py",
    "search --python .venv/bin/python train.py": "an environment: test_other_interpreter.py",
    "search studies/digits_cnn/model.py --space quick": "scikit-learn: test_examples.py",
    "report studies/digits_cnn --tensorboard events": "TensorBoard: test_tensorboard.py",
}
ALONE = ("doctor", "init", "spaces")
FORM = re.compile(r"\b[A-Z]{3,}|\.\.\.|[\[\]\\]|\bN\b|^search --dry-run$")
TRAIN = """\
import argparse
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=90)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
processes = int(os.environ.get("WORLD_SIZE", 1))
if processes > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.ones(128 if processes > 1 else 512, 4)), batch_size=8)
for _ in range(parser.parse_args().epochs):
    for (batch,) in loader:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
if processes > 1:
    time.sleep(0.5)  # a process that ends at once may be aborted by gloo's own threads
"""


def is_whole(line: str) -> bool:
    """True if nothing has to be put in for a word of the line."""
    return not FORM.search(line) and (" " in line or line in ALONE)


WHOLE = sorted(filter(is_whole, LINES))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Everything that the lines name."""
    written(tmp_path, TRAIN, "train.py")
    written(tmp_path, "num_workers: [0, 1]\n", "space.yaml")
    shutil.copy(WORKLOADS / "plain.py", tmp_path / "model.py")
    for name in ("digits_cnn", "mine", "train"):
        shutil.copytree(GOLDEN, tmp_path / "studies" / name)
    mine = TrainingConfig.of({"batch_size": 8})
    found = best_config(mine.replace(num_threads=1), mine)
    write_best(found_here(found, tmp_path / "model.py"), tmp_path / "best.yaml")
    shutil.copy(tmp_path / "best.yaml", tmp_path / "studies/train/best.yaml")
    return tmp_path


def words_of(line: str) -> list[str]:
    """The words to run: of a search its plan alone."""
    words = shlex.split(line)
    if words[0] == "search" and "--dry-run" not in words:
        words.insert(1, "--dry-run")
    if words[0] == "init":
        words.append("written.py")  # there is a model.py
    return words


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in WHOLE if line not in ELSEWHERE])
def test_the_line_runs(folder: Path, line: str) -> None:
    words = words_of(line)
    is_timed = words[0] in ("compare", "profile")
    done = hurried(folder, *words) if is_timed else autotune(folder, *words)
    lost = "--require-faster" in words and done.returncode == 8  # measured too briefly to tell
    assert done.returncode == 0 or lost, done.stderr


def test_what_is_marked_is_documented() -> None:
    assert set(ELSEWHERE) <= set(WHOLE)
    assert len(WHOLE) > 25
