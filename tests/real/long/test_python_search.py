"""`autotune.search` in a script, with real children: what a notebook gets."""

import json
import shutil
import sys

from children import WORKLOADS, completed, nobody_is_left, succeeded
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
    "batch_sizes": [trial.params["batch_size"] for trial in found.study.trials],
    "config": found.best.config.as_dict(),
    "loaded": autotune.load("best.yaml", strict=True, model="mine.py").answer == found.best.answer,
    "study": [type(found.study).__name__, len(found.study.trials)],
    "shown": repr(found),
    "torch": "torch" in sys.modules,
}
print(json.dumps(facts))
"""


def test_a_script_without_a_main_guard_searches_and_runs_once(tmp_path):
    folder = tmp_path
    shutil.copy(WORKLOADS / "plain.py", folder / "mine.py")
    written(folder, "batch_size: [2, 8]\n")
    script = written(folder, SCRIPT, "script.py")
    command = [sys.executable, script]
    done = succeeded(completed(folder, command, PYTHONPATH=str(WORKLOADS.parent)))
    facts = json.loads(done.stdout)
    assert (folder / "started").read_text() == "once\n"
    assert facts["batch_sizes"] == [8, 2]
    assert facts["study"] == ["Study", 2]
    assert not facts["torch"]
    assert nobody_is_left(folder)
    assert facts["loaded"], "it is what was written, and made for this machine"
    assert facts["config"]["batch_size"] in {2, 8}
    assert facts["shown"].startswith("<SearchResult: ")
    assert "search space space.yaml: 2 configurations" in done.stderr
    assert "  written to  " in done.stderr, "stdout is the caller's"
