"""A script of two processes that is searched to a confirmed answer, and runs with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from asked_scripts import SCRIPTS
from autotune.configuration.best_config import read_best
from children import autotune, hurried, nobody_is_left
from factories import written

pytestmark = pytest.mark.slow

SPACE = "num_workers: [0, 1]\nddp_bucket_mb: [null, 5]\n"
TWO = ("--nproc-per-node", "2")
LONG = ("--", "--epochs", "100000", "--read-seconds", "0.002", "--width", "50000")
FLAGS = ("--space", "space.yaml", "--trials", "3", "--study", "s")
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A folder with a finished search, and the search's command."""
    folder = tmp_path_factory.mktemp("two")
    written(folder, SPACE)
    shutil.copy(SCRIPTS / "ddp_loop.py", folder / "train.py")
    done = hurried(folder, "search", "train.py", *TWO, *FLAGS, *LONG)
    assert done.returncode == 0, done.stderr
    assert nobody_is_left(folder)
    return folder, done


def test_it_is_searched_to_a_confirmed_answer(searched: tuple[Path, Done]) -> None:
    folder, done = searched
    best = read_best(folder / "studies" / "s" / "best.yaml")
    assert best.processes == 2
    assert best.config["num_workers"] == 1, "its disk is slow"
    assert best.evidence.speedup.ci95[0] > 1
    assert best.evidence.speedup.rounds >= 2
    assert "2 processes in each trial" in done.stderr
    assert (
        "runs: python train.py --epochs 100000 --read-seconds 0.002 --width 50000, in each of 2"
        in done.stderr
    )
    assert "2 processes, a step of 32 samples: batch_size 16 in each" in done.stdout


def test_the_same_command_continues_and_one_of_another_number_does_not(
    searched: tuple[Path, Done],
) -> None:
    folder, _ = searched
    again = hurried(folder, "search", "train.py", *TWO, *FLAGS, *LONG)
    assert again.returncode == 0, again.stderr
    alone = hurried(folder, "search", "train.py", *FLAGS, *LONG)
    assert alone.returncode != 0
    assert "give --nproc-per-node N" in alone.stderr


@pytest.mark.long
def test_it_is_compared_in_as_many_processes_as_the_file_says(
    searched: tuple[Path, Done],
) -> None:
    folder, _ = searched
    best = folder / "studies" / "s" / "best.yaml"
    done = autotune(folder, "compare", "train.py", best, "--rounds", "6", "--json", *LONG)
    assert done.returncode == 0, done.stderr
    assert '"ratio"' in done.stdout


@pytest.mark.parametrize("how", ["run starts them", "torchrun starts run"])
def test_it_runs_with_the_answer_in_two_processes(how: str, searched: tuple[Path, Done]) -> None:
    folder, _ = searched
    best = folder / "studies" / "s" / "best.yaml"
    script = ("train.py", "--epochs", "3")
    if how == "run starts them":
        done = autotune(folder, "run", best, *TWO, *script)
    else:
        launcher = ("-m", "torch.distributed.run", "--standalone", *TWO, "--no-python")
        words = [*launcher, sys.executable, "-m", "autotune", "run", str(best), *script]
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "batch size 16, workers 1" in done.stderr
    assert done.stderr.count("autotune: applied: ") == 1, "rank 0 alone tells it"
    assert "num_workers=1" in done.stderr
    assert "not made for" not in done.stderr
