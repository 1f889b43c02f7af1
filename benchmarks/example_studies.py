"""Measure gain and cost of a quick search on each example.

    python -m benchmarks.example_studies [NAME ...] [--trials N]

The table has the seconds to the result, the trials, and the confirmed speed-up over the study's own
BASELINE with its 95 % interval. It also counts the trials that were infeasible for memory, crashes
and accuracy. Each search starts from nothing, in a folder of its own. Run it on an idle machine.
`--save` keeps best.yaml and the log beside the example.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import optuna

STUDIES = Path(__file__).resolve().parent.parent / "studies"
OFFLINE = ["digits_cnn", "photos_jpeg", "char_transformer"]


def main() -> None:
    """Run the searches one after the other and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=OFFLINE)
    parser.add_argument("--trials", type=int, help="total trials (default: those of the space)")
    parser.add_argument("--space", default="quick")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    load = os.getloadavg()
    print(f"{os.cpu_count()} cores, load before: {load[0]:.2f} {load[1]:.2f} {load[2]:.2f}")
    print("| study | seconds | trials | speed-up | 95 % interval | lost: memory, ran, accuracy |")
    print("|---|---|---|---|---|---|")
    for name in arguments.names:
        print(row(name, arguments), flush=True)


def row(name: str, arguments: argparse.Namespace) -> str:
    """Search one example and return its row of the table."""
    trials = ["--trials", str(arguments.trials)] if arguments.trials else []
    with tempfile.TemporaryDirectory() as folder:
        example = Path(folder) / "studies" / name
        example.mkdir(parents=True)
        shutil.copy(STUDIES / name / "model.py", example)
        start = time.perf_counter()
        run = subprocess.run(
            [
                *(sys.executable, "-m", "autotune", "search", f"studies/{name}/model.py"),
                *("--space", arguments.space, *trials, "--json", "--progress", "plain"),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - start
        if run.returncode:
            return f"| {name} | {seconds:.0f} | - | exit code {run.returncode} | | |"
        answer = json.loads(run.stdout)
        finished = load_trials(example / "study.db", name)
        if arguments.save:
            shutil.copy(example / "best.yaml", STUDIES / name / "recorded_best.yaml")
            (STUDIES / name / "recorded_search.log").write_text(run.stderr)
    speedup = answer["best"]["evidence"]["speedup"]
    low, high = speedup["ci95"]
    lost = Counter(violated for trial in finished for violated in violations(trial))
    counts = ", ".join(str(lost[kind]) for kind in ("memory", "ran", "accuracy"))
    found = "keep your settings" if answer["answer"] == "keep" else f"{speedup['ratio']:.2f}x"
    interval = f"{low:.2f} to {high:.2f}"
    return f"| {name} | {seconds:.0f} | {len(finished)} | {found} | {interval} | {counts} |"


def load_trials(database: Path, name: str) -> list[optuna.trial.FrozenTrial]:
    """Return all trials of a study."""
    return optuna.load_study(study_name=name, storage=f"sqlite:///{database}").trials


def violations(trial: optuna.trial.FrozenTrial) -> list[str]:
    """Return the names of the constraints that a trial violates."""
    margins = zip(("memory", "accuracy", "ran"), trial.constraints.values(), strict=False)
    return [name for name, margin in margins if margin > 0]


if __name__ == "__main__":
    main()
