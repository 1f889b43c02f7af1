"""A search leaves a checkout as clean as it was, and a new example is seen."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_A_SEARCH = [
    "study.db",
    "study.db-journal",
    "study.db.bak-1",
    "results.jsonl",
    "results.jsonl.torn",
    "best.yaml",
    "best-so-far.yaml",
    ".autotune-lock",
    "trials/0001/job.json",
    "workers/cpu-0/trials/0002/outcome.json",
    "inductor/kernel.py",
    "artifacts/0f1e2d",
]
OF_AN_EXAMPLE = ["README.md", "model.py", "train.py", "recorded_best.yaml", "recorded_search.log"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty repository that ignores what this one does."""
    shutil.copy(ROOT / ".gitignore", tmp_path)
    git(tmp_path, "init", "--quiet")
    return tmp_path


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=folder, env=own, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("study", ["digits_cnn", "one-of-my-own"])
def test_files_of_a_search_are_ignored(repository: Path, study: str) -> None:
    names = [f"studies/{study}/{name}" for name in OF_A_SEARCH]
    assert git(repository, "check-ignore", *names).stdout.splitlines() == names


def test_the_files_of_an_example_are_not_ignored(repository: Path) -> None:
    names = [f"studies/digits_cnn/{name}" for name in OF_AN_EXAMPLE]
    names += ["studies/tables/digits_cnn.jsonl.xz", "studies/h200/2027-part1/summary.txt"]
    ignored = git(repository, "check-ignore", *names)
    assert (ignored.returncode, ignored.stdout) == (1, "")
