"""`autotune.search` in a script, with real children: what a notebook gets."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from children import DEADLINE, WORKLOADS, nobody_is_left
from factories import written

# Everything at the top level: whoever is started must not run it again.
SCRIPT = """\
import json
import sys
from pathlib import Path

import optuna

import autotune
from hurried_command import hurry

hurry()
with open("started", "a") as file:
    file.write("once\\n")
found = autotune.search(
    Path("mine.py"),
    space="space.yaml",
    trials=2,
    accuracy_samples=512,
    device="cpu",
    sampler=optuna.samplers.RandomSampler(seed=0),
    out="best.yaml",
)
facts = {
    "batch_sizes": list(found.dataframe()["batch_size"]),
    "config": found.best.config.as_dict(),
    "loaded": autotune.load("best.yaml", strict=True, model="mine.py") == found.best,
    "study": [type(found.study).__name__, len(found.study.trials)],
    "shown": [repr(found), found._repr_html_()],
    "torch": "torch" in sys.modules,
}
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The folder of a script that searched two batch sizes, and what it printed."""
    folder = tmp_path_factory.mktemp("python")
    shutil.copy(WORKLOADS / "plain.py", folder / "mine.py")
    written(folder, "batch_size: [2, 8]\n")
    script = written(folder, SCRIPT, "script.py")
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(WORKLOADS.parent)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout), done.stderr


def test_a_script_without_a_main_guard_searches_and_runs_once(searched):
    folder, facts, _ = searched
    assert (folder / "started").read_text() == "once\n"
    assert facts["batch_sizes"] == [8, 2]
    assert facts["study"] == ["Study", 2]
    assert not facts["torch"]
    assert nobody_is_left(folder)


def test_the_result_is_what_was_written_and_was_made_for_this_machine(searched):
    _, facts, _ = searched
    assert facts["loaded"]
    assert facts["config"]["batch_size"] in {2, 8}
    assert facts["shown"][0].startswith("<SearchResult: ")
    assert "<table" in facts["shown"][1]


def test_progress_is_on_stderr(searched):
    assert "search space space.yaml: 2 configurations" in searched[2]
    assert "  written to  " in searched[2], "stdout is the caller's"
