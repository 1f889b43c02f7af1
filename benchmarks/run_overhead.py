"""Measure the overhead of `autotune run` on a script: the same loop with and without it, in turns.

    python -m benchmarks.run_overhead [--rounds N] [--epochs N]

A step takes about a millisecond, with batches from a DataLoader without workers. The settings are
the script's own, so that only the interposition differs. The script times its epochs of 64 steps
itself, and the median one counts. The start of the process is reported apart. Target: below 2 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from autotune.configuration.script import plan_run
from autotune.configuration.training_config import TrainingConfig
from benchmarks.medians import log_median, median_interval

START = "from autotune.scripting.run import main; main()"
SCRIPT = """
import json, statistics, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(4096, 256), torch.randn(4096, 1))
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                      nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(data, batch_size=64)
epochs = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    for x, y in loader:
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    epochs.append(time.perf_counter() - start)
# Whatever another program disturbed, and the first epochs, lie in the slower half.
print(json.dumps([statistics.median(epochs) / len(loader), sum(epochs)]))
"""


def main() -> None:
    """Run both in turns and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--epochs", type=int, default=24)
    arguments = parser.parse_args()
    config = TrainingConfig.of({"batch_size": 64, "num_threads": 1})
    plan = plan_run(config, config.as_dict(), [], allow_numerics=False)
    ways = {
        "plain": [sys.executable],
        "autotune run": [sys.executable, "-P", "-c", START, plan.to_json()],
    }
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    steps: dict[str, list[float]] = {way: [] for way in ways}
    starts: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        for number in range(arguments.rounds):
            for way in sorted(ways, reverse=bool(number % 2)):
                step, start = once([*ways[way], str(script), str(arguments.epochs)])
                steps[way].append(step)
                starts[way].append(start)
    show(steps, starts)


def once(command: list[str]) -> tuple[float, float]:
    """Run once; return the seconds of a step, and those of the process beside all steps."""
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    step, training = map(float, json.loads(done.stdout))
    return step, time.perf_counter() - begin - training


def show(steps: dict[str, list[float]], starts: dict[str, list[float]]) -> None:
    """Print the medians, and the ratio with its interval over the rounds."""
    print("| way | step | start and end |")
    print("|---|---|---|")
    for way, seconds in steps.items():
        print(f"| {way} | {1e3 * median(seconds):.3f} ms | {median(starts[way]):.2f} s |")
    pairs = zip(steps["autotune run"], steps["plain"], strict=True)
    ratios = [run / plain for run, plain in pairs]
    low, high = median_interval(ratios)
    overhead = 100 * (log_median(ratios) - 1)
    print(
        f"overhead of a step: {overhead:+.2f} % ({100 * low - 100:+.2f} to {100 * high - 100:+.2f})"
    )


if __name__ == "__main__":
    main()
