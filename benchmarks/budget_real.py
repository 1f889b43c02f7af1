"""Real searches with several time budgets: seconds taken, configurations measured, result.

    python -m benchmarks.budget_real [--budgets 60,120,240,600] [--out FILE] [NAME ...]

NAME is one of:

- digits_cnn, char_transformer, plain_loop, hf_trainer: workloads and scripts of this repository
- dear_data: an MLP on digits with a dataset that takes ten seconds to build
- dear_evaluation: the same MLP with an evaluation that takes twelve seconds
- neither: the same MLP without them

Searches run one at a time, by the command line, each in a folder of its own. Run it on an idle
machine.
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
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
STUDIES, SCRIPTS = REPOSITORY / "studies", REPOSITORY / "tests" / "scripts"
FOR_EVER = "100000"
# Words that follow MODEL on the command line.
SCRIPT_CALLS = {
    "plain_loop": ["--", "--epochs", FOR_EVER, "--samples", "1024", "--read-seconds", "0.002"],
    "hf_trainer": ["--", "out", FOR_EVER, "0.002"],
}
SMALL = """\
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

BASELINE = {{"batch_size": 16}}


def _digits():
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    return inputs, torch.tensor(digits.target)


def build_model():
    hidden = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(256, 10))


def build_dataset():
    time.sleep({dataset})
    inputs, targets = _digits()
    return TensorDataset(inputs[:1400], targets[:1400])


def compute_loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def evaluate(model, device):
    time.sleep({evaluation})
    inputs, targets = _digits()
    with torch.no_grad():
        answers = model(inputs[1400:].to(device)).argmax(dim=1).cpu()
    return float((answers == targets[1400:]).float().mean())
"""
SMALL_SECONDS = {"dear_data": (10, 0), "dear_evaluation": (0, 12), "neither": (0, 0)}
NAMES = ("digits_cnn", "char_transformer", *SCRIPT_CALLS)


def main() -> None:
    """Search and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--budgets", default="60,120,240,600")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    print("| workload | budget, s | taken, s | measured | result |")
    print("|---|---|---|---|---|")
    for name in arguments.names:
        for seconds in map(int, arguments.budgets.split(",")):
            row = searched(name, seconds)
            print(row, flush=True)
            if arguments.out is not None:
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.write(row + "\n")


def searched(name: str, seconds: int) -> str:
    """Return one search as a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        model, words = model_of(name, Path(folder))
        command = [sys.executable, "-m", "autotune", "search", str(model), "--json"]
        command += ["--time-budget", f"{seconds}s", "--progress", "plain", *words]
        environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        start = time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=False
        )
        taken = time.perf_counter() - start
    measured, result = result_of(done)
    return f"| {name} | {seconds} | {taken:.0f} | {measured} | {result} |"


def model_of(name: str, folder: Path) -> tuple[Path, list[str]]:
    """Return the file to search, and the words that follow it."""
    if name in SCRIPT_CALLS:
        shutil.copy(SCRIPTS / f"{name}.py", folder / "train.py")
        return folder / "train.py", SCRIPT_CALLS[name]
    if name in SMALL_SECONDS:
        dataset, evaluation = SMALL_SECONDS[name]
        model = folder / "model.py"
        model.write_text(SMALL.format(dataset=dataset, evaluation=evaluation), encoding="utf-8")
        return model, []
    return STUDIES / name / "model.py", []


def result_of(done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """Return the number of measured configurations and the result, as cells of the table."""
    told = json.loads(done.stdout) if done.stdout.strip() else {"answer": "none"}
    if "best" not in told:
        measured = str(told.get("measured", 0))
        wanted = told.get("time_budget")
        hint = f", names {wanted:.0f} s" if wanted else ""
        return measured, f"{told['answer']} (exit {done.returncode}{hint})"
    evidence = told["best"]["evidence"]
    measured = str(evidence["searched"]["measured"])
    if told["answer"] == "keep":
        return measured, "keep your settings"
    low, high = evidence["speedup"]["ci95"]
    return measured, f"{evidence['speedup']['ratio']:.2f}x ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
