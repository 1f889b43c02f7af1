"""What a trial costs beside the user's own work: forked from the warm host, and started afresh.

    python benchmarks/overhead.py [--trials N] [MODEL.py]

Seconds per trial that are neither warm-up, nor compilation, nor measurement, nor the user's own
building of model and dataset. Both ways to start take turns in one run, on a machine that does
nothing else; without a MODEL.py on a perceptron that trains in microseconds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from autotune.config import TrainingConfig
from autotune.intervals import median_interval
from autotune.job import Job, Measure, MeasurePlan
from autotune.outcome import Measured
from autotune.tuning.running.runner import SubprocessRunner

SMALL = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def build_model():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

def build_dataset():
    return TensorDataset(torch.randn(4096, 16), torch.randn(4096, 1))

def compute_loss(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()
"""
PLAN = MeasurePlan(looks=(6,), block_seconds=0.1)
WAYS = {"forked": "search", "fresh interpreter": None}


def main() -> None:
    """Run both kinds in turn and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--trials", type=int, default=9, help="of each kind")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.model is None:
            (folder / "model.py").write_text(SMALL)
        seconds = measure(folder, arguments.model or folder / "model.py", arguments.trials)
    print("| trial | seconds beside the user's work | 95 % interval |")
    print("|---|---|---|")
    for way, values in seconds.items():
        low, high = median_interval(values)
        print(f"| {way} | {median(values):.3f} | {low:.3f} to {high:.3f} |")
    forked, fresh = seconds.values()
    ratios = [b / a for a, b in zip(forked, fresh, strict=True)]
    low, high = median_interval(ratios)
    print(f"fresh over forked: {median(ratios):.1f}x ({low:.1f} to {high:.1f})")


def measure(folder: Path, model: Path, trials: int) -> dict[str, list[float]]:
    """Seconds of overhead of each trial, by the way it was started."""
    config = TrainingConfig.of({"batch_size": 32, "num_threads": 1}).as_dict()
    job = Job(Measure(PLAN), "cpu", str(model.resolve()), config)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    with SubprocessRunner(folder / "inductor") as runner:
        runner.run(job, folder / "first")  # starts the host, which is paid once a search
        for _ in range(trials):
            for way, host in WAYS.items():
                task = replace(job, host=host)
                seconds[way].append(overhead(runner, task, folder / "trial"))
    return seconds


def overhead(runner: SubprocessRunner, job: Job, folder: Path) -> float:
    """Seconds of one trial beside warm-up, compilation, measurement and the user's building."""
    start = time.perf_counter()
    outcome = runner.run(job, folder)
    wall = time.perf_counter() - start
    assert isinstance(outcome, Measured), outcome
    run = outcome.measurement
    own = run.build_seconds + sum(run.warmup_step_seconds) + sum(run.boundary_seconds)
    return wall - own - sum(block.seconds for block in run.blocks)


if __name__ == "__main__":
    main()
