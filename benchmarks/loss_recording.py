"""Measure the cost of recording a script's loss: one loop with it switched on and off, in turns.

    python -m benchmarks.loss_recording [--rounds N] [--steps N]

One process trains; blocks of steps alternate, and each pair of blocks gives a ratio. A step takes
about a millisecond. Target: at most 1 % with its interval. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.scripting.quality.losses import LossRecorder
from autotune.scripting.steps import Steps
from autotune.values.statistics import log_median, median_interval


def main() -> None:
    """Train in alternating blocks and print the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=101, help="pairs of blocks")
    parser.add_argument("--steps", type=int, default=64, help="steps of a block")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    seconds = measure(arguments.rounds, arguments.steps)
    ratios = [on / off for on, off in zip(seconds[True], seconds[False], strict=True)]
    low, high = median_interval(ratios)
    for is_on, each in seconds.items():
        print(f"recording {'on' if is_on else 'off'}: {1e3 * median(each):.4f} ms a step")
    cost = 100 * (log_median(ratios) - 1)
    print(f"cost: {cost:+.2f} % ({100 * low - 100:+.2f} to {100 * high - 100:+.2f})")


def measure(rounds: int, steps: int) -> dict[bool, list[float]]:
    """Return the seconds of a step in each block, with and without recording."""
    training = Training()
    training.block(True, steps)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds):
        for is_on in (True, False) if number % 2 else (False, True):
            seconds[is_on].append(training.block(is_on, steps))
    return seconds


class Training:
    """The loop of `benchmarks.run_overhead`, with the hooks that a trial has."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.recorder, steps = LossRecorder(), Steps()
        self.recorder.watch()
        steps.watch()
        steps.losses.append(self.recorder.note)
        steps.listeners.append(lambda _: self.recorder.stepped(0))
        data = TensorDataset(torch.randn(4096, 256), torch.randn(4096, 1))
        layers = (nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.model = nn.Sequential(*layers, nn.Linear(256, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.loader = DataLoader(data, batch_size=64)
        self.batches = iter(self.loader)

    def block(self, is_on: bool, steps: int) -> float:
        """Train for a block, and return the seconds of a step."""
        self.recorder.is_on = is_on
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - start) / steps

    def step(self) -> None:
        """Take a step on the next batch; a new epoch begins where one ends."""
        try:
            x, y = next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            x, y = next(self.batches)
        self.optimizer.zero_grad()
        (self.model(x) - y).square().mean().backward()
        self.optimizer.step()


if __name__ == "__main__":
    main()
