"""Search a training whose rare steps are long, and time the answer in plain PyTorch.

    python -m benchmarks.uneven [--space quick] [--budget 300] [--rounds 6] [--cycles 3]

Seven short steps with many small kernels are followed by one with a large product, and one thread
is faster at the short ones alone. The search is that of the command line. Then a plain loop, which
knows nothing of autotune, takes whole cycles of eight steps under all threads and under one, in
turns of fresh processes. Run it on an idle machine.
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

MODEL = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

BASELINE = {"batch_size": 32}
CYCLE = 8


class Uneven(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2400))
        self.wide = nn.Linear(768, 768)
        self.register_buffer("rows", torch.randn(4096, 768), persistent=False)
        self.steps = 0

    def forward(self, inputs):
        for norm in self.norms:
            inputs = norm(inputs)
        self.steps += 1
        if self.steps % CYCLE == 0:
            rows = self.rows
            for _ in range(24):
                rows = torch.relu(self.wide(rows))
            inputs = inputs + rows.mean()
        return inputs


def build_model():
    return Uneven()


def build_dataset():
    return TensorDataset(torch.randn(4096, 32), torch.randn(4096, 32))


def compute_loss(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])
"""
PLAIN = """\
import sys
import time

import torch
from torch.utils.data import DataLoader

import model as workload

torch.set_num_threads(int(sys.argv[1]))
model = workload.build_model()
optimizer = torch.optim.AdamW(model.parameters())
loader = iter(DataLoader(workload.build_dataset(), batch_size=32, shuffle=True))


def cycle():
    for _ in range(workload.CYCLE):
        optimizer.zero_grad()
        workload.compute_loss(model, next(loader)).backward()
        optimizer.step()


cycle()
start = time.perf_counter()
for _ in range(int(sys.argv[2])):
    cycle()
print((time.perf_counter() - start) / int(sys.argv[2]))
"""


def main() -> None:
    """Search, time plain cycles in turns, and print both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--space", default="quick")
    parser.add_argument("--budget", type=int, default=300, help="seconds of the search")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--cycles", type=int, default=3, help="timed cycles of a process")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.py").write_text(MODEL, encoding="utf-8")
        Path(folder, "plain.py").write_text(PLAIN, encoding="utf-8")
        print(answer(Path(folder), arguments.space, arguments.budget))
        user, one = [], []
        for _ in range(arguments.rounds):
            user.append(plain_cycle(Path(folder), os.cpu_count() or 1, arguments.cycles))
            one.append(plain_cycle(Path(folder), 1, arguments.cycles))
    ratios = [mine / alone for mine, alone in zip(user, one, strict=True)]
    print(f"a plain cycle: {median(user):.2f} s with all threads, {median(one):.2f} s with one;")
    low, high = min(ratios), max(ratios)
    print(f"one thread is {median(ratios):.2f}x as fast ({low:.2f} to {high:.2f})")


def answer(folder: Path, space: str, budget: int) -> str:
    """Return what the search answered, in a line."""
    command = [sys.executable, "-m", "autotune", "search", "model.py", "--json"]
    command += ["--space", space, "--time-budget", f"{budget}s", "--progress", "none"]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    taken = f"{time.perf_counter() - start:.0f} s, exit {done.returncode}"
    told = json.loads(done.stdout) if done.stdout.strip() else {"answer": "none"}
    if "best" not in told:
        return f"the search: {told['answer']} after {taken}"
    evidence = told["best"]["evidence"]
    changed, gain = evidence["changed"], evidence.get("speedup")
    return f"the search: {told['answer']} after {taken}, {changed}, {gain}"


def plain_cycle(folder: Path, threads: int, cycles: int) -> float:
    """Return the seconds of a cycle in a plain loop of a fresh process."""
    command = [sys.executable, "plain.py", str(threads), str(cycles)]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
