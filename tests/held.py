"""Searches and workers whose trials wait for a test: see `workloads/waits.py`."""

import os
import shutil
from pathlib import Path
from subprocess import Popen

import optuna
from optuna.trial import FrozenTrial

from autotune.study.storage import existing
from children import WORKLOADS, wait_until
from factories import written

SPACE = "batch_size: [8, 24, 32, 64, 128]\n"
TRIALS = 5
FLAGS = ["--space", "space.yaml", "--trials", str(TRIALS), "--accuracy-samples", "256"]
CORES = sorted(os.sched_getaffinity(0))[:2]
LONG = 200
"""Seconds: for what takes a few, on a machine that is busy with something else."""


def place(folder: Path) -> Path:
    """The path of the model, in a folder with its search space."""
    folder.mkdir(exist_ok=True)
    written(folder, SPACE)
    for name in ("plain.py", "waits.py"):
        shutil.copy(WORKLOADS / name, folder)
    return folder / "waits.py"


def hold(folder: Path, *cores: int) -> None:
    """From now on, trials that are given in `folder` wait on these cores."""
    for core in cores:
        (folder / f"held-{core}").unlink(missing_ok=True)
        (folder / f"hold-{core}").touch()


def release(folder: Path, *cores: int) -> None:
    """Let them go on."""
    for core in cores:
        (folder / f"hold-{core}").unlink(missing_ok=True)


def held_on(folder: Path, core: int, command: Popen[str]) -> int:
    """The process that waits on a core; waits until there is one, or the command has ended."""
    file = folder / f"held-{core}"

    def is_held() -> bool:
        return file.exists() and file.read_text() != ""

    wait_until(lambda: is_held() or command.poll() is not None, seconds=LONG)
    assert is_held(), (folder / "stderr.txt").read_text()
    return int(file.read_text())


def trials_in(url: str, name: str = "scripted") -> list[FrozenTrial]:
    """The trials of a study as Optuna alone reads them, finished or not."""
    opened = existing(url)
    try:
        return optuna.load_study(study_name=name, storage=opened).trials
    finally:
        opened.engine.dispose()


def told(trials: list[FrozenTrial]) -> dict[int, float | None]:
    """Batch size to value, of the finished trials; each batch size once."""
    finished = [trial for trial in trials if trial.state.name == "COMPLETE"]
    found = {trial.user_attrs["config"]["batch_size"]: trial.value for trial in finished}
    assert len(found) == len(finished), "measured twice"
    return found
