"""Compare the search of a script with that of a model.py of the same training.

    python -m benchmarks.script_or_model [NAME ...] [--seconds S] [--seeds N] [--space SPACE]

Both get the same space, time budget and seed, one after the other, in turn first. A row has the
confirmed speed-ups over the settings of the example, the script's as a share of the model.py's, and
whether both answers have the same settings. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

STUDIES = Path(__file__).resolve().parent.parent / "studies"
NAMES = ("digits_cnn", "photos_jpeg", "char_transformer")
_NOT_SEARCHED_ENOUGH = 9


def main() -> None:
    """Run all searches and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--space", default="default")
    arguments = parser.parse_args()
    load = os.getloadavg()
    print(f"{os.cpu_count()} cores, load before: {load[0]:.2f} {load[1]:.2f} {load[2]:.2f}")
    print("| study | seed | script | model.py | share | settings |")
    print("|---|---|---|---|---|---|")
    for name in arguments.names:
        shares = []
        for seed in range(arguments.seeds):
            kinds = ("script", "model.py")[:: -1 if seed % 2 else 1]
            options = ("--space", arguments.space, "--time-budget", f"{arguments.seconds}s")
            found = {kind: confirmed(kind, name, seed, options) for kind in kinds}
            (script, its_changes), (model, changes) = found["script"], found["model.py"]
            shares.append(script / model)
            settings = "the same" if its_changes == changes else "others"
            cells = (f"{script:.2f}x", f"{model:.2f}x", f"{shares[-1]:.0%}", settings)
            print(f"| {name} | {seed} | {' | '.join(cells)} |", flush=True)
        print(f"| {name} | mean | | | {fmean(shares):.0%} | |", flush=True)


def confirmed(
    kind: str, name: str, seed: int, options: tuple[str, ...]
) -> tuple[float, dict[str, object]]:
    """Search and return the confirmed speed-up and the changed settings.

    It is 1, and no setting changes, where the settings stay, for want of time too.

    Raises:
        CalledProcessError: the search failed.
    """
    if kind == "script":
        words = [str(STUDIES / "train.py"), *options, "--seed", str(seed), "--json", "--", name]
    else:
        words = [str(STUDIES / name / "model.py"), *options, "--seed", str(seed), "--json"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "autotune", "search", *words]
        done = subprocess.run(command, cwd=folder, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode == _NOT_SEARCHED_ENOUGH:
        return 1.0, {}
    done.check_returncode()
    answer = json.loads(done.stdout)
    if answer["answer"] == "keep":
        return 1.0, {}
    evidence = answer["best"]["evidence"]
    return float(evidence["speedup"]["ratio"]), evidence["changed"]


if __name__ == "__main__":
    main()
