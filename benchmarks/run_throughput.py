"""Check that `autotune run` reaches the speed-up that a search of the same script confirmed.

    python -m benchmarks.run_throughput SCRIPT [--rounds N] [--folder FOLDER]

SCRIPT is plain_loop, hf_trainer, lightning_fit or ddp_loop of tests/scripts: an unmodified training
script, with a dataset that waits for its disk. The script is searched. Then whole runs of it, as it
is and under `autotune run`, take turns. Each run prints its own samples per second at its end,
without start and validation. Target: within 5 % of the confirmed speed-up. ddp_loop trains in two
processes, which the search starts itself and the runs by torch's launcher.

A FOLDER keeps the result, for further rounds without a search. `--rounds 0` only searches.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from autotune.configuration.best_config import BestConfig, read_best
from autotune.configuration.training_config import TrainingConfig, render
from benchmarks.medians import log_median, median_interval

SCRIPTS = Path(__file__).parents[1] / "tests" / "scripts"
SPACE = "num_workers: [0, {workers}]\npersistent_workers: [true]\n"
PROCESSES = {"ddp_loop": 2}
READ = "0.002"
# Arguments for the search, which stops the script early, and for a whole run.
CALLS = {
    "plain_loop": (
        ["--samples", "1024", "--read-seconds", READ, "--epochs", "100000"],
        ["--samples", "1024", "--read-seconds", READ, "--epochs", "3"],
    ),
    "hf_trainer": (["out", "100000", READ], ["out", "240", READ]),
    "lightning_fit": (["out", "100000", READ], ["out", "240", READ]),
    "ddp_loop": (
        ["--samples", "2048", "--read-seconds", READ, "--width", "50000", "--epochs", "100000"],
        ["--samples", "2048", "--read-seconds", READ, "--width", "50000", "--epochs", "4"],
    ),
}


def main() -> None:
    """Search, run in turns, and print a row of a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("script", choices=CALLS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}", flush=True)
    long, short = CALLS[arguments.script]
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        folder.mkdir(exist_ok=True)
        shutil.copy(SCRIPTS / f"{arguments.script}.py", folder / "train.py")
        processes = PROCESSES.get(arguments.script, 1)
        best = searched(folder, long, processes)
        if arguments.rounds:
            paces = in_turns(folder, short, arguments.rounds, processes)
            show(arguments.script, best, paces)


def launcher(processes: int) -> list[str]:
    """Return torch's launcher of so many processes, put before a program; nothing for one."""
    if processes == 1:
        return []
    options = ["--standalone", "--nproc-per-node", str(processes), "--no-python"]
    return [sys.executable, "-m", "torch.distributed.run", *options]


def in_turns(
    folder: Path, arguments: list[str], rounds: int, processes: int
) -> dict[str, list[float]]:
    """Return the samples per second of the script as it is and under `autotune run`."""
    before, run = launcher(processes), ["-m", "autotune", "run", "best.yaml"]
    ways = {
        "plain": [*before, sys.executable, "train.py", *arguments],
        "run": [*before, sys.executable, *run, "train.py", *arguments],
    }
    paces: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in sorted(ways, reverse=bool(number % 2)):
            paces[way].append(pace(ways[way], folder))
    return paces


def searched(folder: Path, arguments: list[str], processes: int) -> BestConfig:
    """Search the script, unless the folder has a result; return it."""
    if (folder / "best.yaml").exists():
        return read_best(folder / "best.yaml")
    (folder / "space.yaml").write_text(SPACE.format(workers=2 // processes))
    flags = ["--space", "space.yaml", "--trials", "2", "--out", "best.yaml"]
    flags += ["--nproc-per-node", str(processes)]
    command = [sys.executable, "-m", "autotune", "search", "train.py", *flags, "--", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return read_best(folder / "best.yaml")


def pace(command: list[str], folder: Path) -> float:
    """Run the script; return the samples per second that it prints at its end."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (found,) = re.findall(r"^([\d.]+) samples/s$", done.stderr, re.MULTILINE)
    return float(found)


def show(script: str, best: BestConfig, paces: dict[str, list[float]]) -> None:
    """Print the confirmed speed-up, the reached one, and their ratio."""
    confirmed, ratios = (
        best.evidence.speedup,
        [run / plain for run, plain in zip(paces["run"], paces["plain"], strict=True)],
    )
    low, high = median_interval(ratios)
    reached = log_median(ratios)
    own = TrainingConfig.of(best.evidence.baseline.config)
    print(f"settings: {render(best.training_config.differences(own)) or 'as they were'}")
    print(
        f"samples/s: confirmed {best.evidence.baseline.samples_per_second:.1f} -> "
        f"{best.evidence.best.samples_per_second:.1f}, in whole runs {median(paces['plain']):.1f} "
        f"-> {median(paces['run']):.1f}"
    )
    print("| script | confirmed | whole runs in turn | reached of what was confirmed |")
    print("|---|---|---|---|")
    print(
        f"| {script} | {spread(confirmed.ratio, *confirmed.ci95)}, {confirmed.rounds} rounds "
        f"| {spread(reached, low, high)}, {len(ratios)} rounds "
        f"| {reached / confirmed.ratio:.3f} ({low / confirmed.ratio:.3f} to "
        f"{high / confirmed.ratio:.3f}) |"
    )


def spread(ratio: float, low: float, high: float) -> str:
    """Format a ratio with its interval."""
    return f"{ratio:.3f}x ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
