"""Measure the overhead of a trial, forked from the warm host and started in a fresh interpreter.

    python -m benchmarks.overhead [--trials N] [MODEL.py]

Overhead is all that is neither warm-up, nor compilation, nor timing, nor the user's own building of
model and dataset. The ways to start take turns; one has a host with a variable. Without a MODEL.py,
the workload is a perceptron that trains in microseconds. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median

from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured
from benchmarks.medians import median_interval

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
PLAN = MeasurePlan(block_counts=(6,), block_seconds=0.1)
SETTINGS = {"batch_size": 32, "num_threads": 1}
WAYS = {
    "forked": ("search", SETTINGS),
    "forked with a variable": ("search", {**SETTINGS, "env.OMP_WAIT_POLICY": "ACTIVE"}),
    "fresh interpreter": (None, SETTINGS),
}


def main() -> None:
    """Run all kinds in turn and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--trials", type=int, default=9, help="trials of each kind")
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
    *forked, fresh = seconds.items()
    for way, values in forked:
        ratios = [b / a for a, b in zip(values, fresh[1], strict=True)]
        low, high = median_interval(ratios)
        print(f"fresh over {way}: {median(ratios):.1f}x ({low:.1f} to {high:.1f})")


def measure(folder: Path, model: Path, trials: int) -> dict[str, list[float]]:
    """Return the overhead of each trial in seconds, by the way to start."""
    jobs = {
        way: Job(
            Measure(PLAN),
            "cpu",
            str(model.resolve()),
            TrainingConfig.of(settings).as_dict(),
            host=host,
        )
        for way, (host, settings) in WAYS.items()
    }
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    with SubprocessRunner(folder / "inductor") as runner:
        for job in jobs.values():  # starts the hosts, once per search
            runner.run(job, folder / "first")
        for _ in range(trials):
            for way, job in jobs.items():
                seconds[way].append(overhead(runner, job, folder / "trial"))
    return seconds


def overhead(runner: SubprocessRunner, job: Job, folder: Path) -> float:
    """Run one trial; return its seconds beside warm-up, compilation, timing and building."""
    start = time.perf_counter()
    outcome = runner.run(job, folder)
    wall = time.perf_counter() - start
    assert isinstance(outcome, Measured), outcome
    run = outcome.measurement
    own = max(0.0, run.build_seconds - run.shared_seconds) + sum(run.boundary_seconds)
    return wall - own - sum((*run.warmup_step_seconds, *(block.seconds for block in run.blocks)))


if __name__ == "__main__":
    main()
