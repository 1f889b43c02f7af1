"""Measure the seconds of a trial with a dataset that is slow to build, by three ways to start.

    python -m benchmarks.dear_data [--seconds 10] [--trials 5]

A small workload is timed twice: its dataset is there at once, or after some seconds. A trial is
forked from a host with the dataset, forked from one without it, or started in a fresh interpreter.
The three ways take turns. The table has the median wall seconds of a whole trial. The first trial
of a host, which pays for the host and its dataset, has a column of its own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured

WORKLOAD = """
import time
import torch
from torch import nn
from torch.utils.data import TensorDataset

def build_model():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

def build_dataset():
    time.sleep({seconds})
    return TensorDataset(torch.randn(4096, 16), torch.randn(4096, 1))

def compute_loss(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()
"""
PLAN = MeasurePlan(block_counts=(6,), block_seconds=0.1)
CONFIG = TrainingConfig.of({"batch_size": 32, "num_threads": 1}).as_dict()
# Changes to the job for each way to start.
WAYS = {
    "forked, dataset built once": {},
    "forked, --fresh-data": {"fresh_data": True},
    "fresh interpreter": {"host": None},
}


def main() -> None:
    """Time both workloads and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds to build the dataset")
    parser.add_argument("--trials", type=int, default=5, help="trials of each kind")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    print("| way | dataset | first trial | further trials |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for seconds in (0.0, arguments.seconds):
            folder = Path(name, f"{seconds:g}")
            folder.mkdir()
            (folder / "model.py").write_text(WORKLOAD.format(seconds=seconds))
            for way, (first, later) in measure(folder, arguments.trials).items():
                print(f"| {way} | {seconds:g} s | {first:.2f} s | {median(later):.2f} s |")


def measure(folder: Path, trials: int) -> dict[str, tuple[float, list[float]]]:
    """Return the seconds of the first trial and of the further ones, by the way to start."""
    job = Job(Measure(PLAN), "cpu", str(folder / "model.py"), CONFIG)
    # A host either holds a dataset or not, so each way has a runner and a host of its own.
    runners = {way: SubprocessRunner(folder / "inductor") for way in WAYS}
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    try:
        for _ in range(1 + trials):
            for way, changes in WAYS.items():
                task = replace(job, **changes)
                seconds[way].append(timed(runners[way], task, folder / "trial"))
    finally:
        for runner in runners.values():
            runner.close()
    return {way: (first, later) for way, (first, *later) in seconds.items()}


def timed(runner: SubprocessRunner, job: Job, folder: Path) -> float:
    """Run one trial and return its wall seconds."""
    start = time.perf_counter()
    outcome = runner.run(job, folder)
    assert isinstance(outcome, Measured), outcome
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
