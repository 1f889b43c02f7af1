"""Does `--objective time-to-loss` find the batch that reaches the loss first? Plain torch judges.

    python -m benchmarks.time_to_loss [digits_cnn] [quadratic]

A search varies the batch size alone. Then a loop in plain torch, which shares no code with it,
trains with each batch on seeds of its own until the mean loss over the last fifth of the samples
reaches the loss that the search names. Prints a table of the seconds, and what was claimed.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean

import torch
from torch.utils.data import DataLoader

ROOT = Path(__file__).parents[1]
WORKLOADS = {
    "digits_cnn": ROOT / "studies" / "digits_cnn" / "model.py",
    "quadratic": ROOT / "benchmarks" / "quadratic_model.py",
}
SIZES = {"digits_cnn": (8, 16, 32, 64, 128, 256), "quadratic": (8, 16, 32, 64, 256, 1024)}
SEEDS = (100, 101, 102)


def searched(name: str) -> dict:
    """Return the best.yaml of a search that varies the batch size alone."""
    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder, "batches.yaml")
        space.write_text(f"batch_size: {list(SIZES[name])}\n")
        words = ["search", str(WORKLOADS[name]), "--objective", "time-to-loss", "--json", "-q"]
        words += ["--space", str(space), "--trials", str(len(SIZES[name])), "--device", "cpu"]
        command = [sys.executable, "-m", "autotune", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)["best"]


def loaded(name: str):
    """Import a model.py."""
    spec = importlib.util.spec_from_file_location(name, WORKLOADS[name])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds_to(loss: float, model_file, batch: int, seed: int, most: int) -> float | None:
    """Train in plain torch until the smoothed loss is reached; return the seconds, or None."""
    torch.manual_seed(seed)
    model = model_file.build_model()
    build = getattr(model_file, "build_optimizer", lambda given: torch.optim.AdamW(given, lr=1e-3))
    optimizer = build(model.parameters())
    loader = DataLoader(model_file.build_dataset(), batch, shuffle=True, drop_last=True)
    losses, start = [], time.perf_counter()
    while len(losses) * batch < most:
        for data in loader:
            optimizer.zero_grad(set_to_none=True)
            found = model_file.compute_loss(model, data)
            found.backward()
            optimizer.step()
            losses.append(found.item())
            fifth = losses[-max(1, round(len(losses) / 5)) :]
            if len(losses) * batch >= most / 100 and fmean(fifth) <= loss:
                return time.perf_counter() - start
    return None


def judged(name: str, best: dict) -> dict[int, float]:
    """Return the mean seconds to the loss for each batch that reaches it with every seed."""
    told, model_file = best["evidence"]["time_to_loss"], loaded(name)
    most = 2 * round(told["baseline_samples"])
    found: dict[int, list[float | None]] = {size: [] for size in SIZES[name]}
    seconds_to(0.0, model_file, SIZES[name][0], 0, most // 20)  # warms up
    for seed in SEEDS:  # in turn, so that a drift of the machine affects all alike
        for size, seconds in found.items():
            seconds.append(seconds_to(told["loss"], model_file, size, seed, most))
    return {size: fmean(known) for size, known in found.items() if None not in known}


def main() -> None:
    """Search and judge each workload that was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*WORKLOADS, []])
    given = parser.parse_args()
    for name in given.names or WORKLOADS:
        best = searched(name)
        own = best["evidence"]["baseline"]["config"]["batch_size"]
        emitted, speedup = best["config"]["batch_size"], best["evidence"]["speedup"]
        seconds = judged(name, best)
        fastest = min(seconds, key=seconds.__getitem__, default=None)
        print(f"{name}: loss {best['evidence']['time_to_loss']['loss']}")
        for size, taken in seconds.items():
            print(f"  batch {size:>5}: {taken:6.2f} s")
        low, high = speedup["ci95"]
        print(f"  emitted {emitted}, claimed {speedup['ratio']:.2f}x ({low:.2f} to {high:.2f})")
        is_judged = own in seconds and emitted in seconds
        told = f"{seconds[own] / seconds[emitted]:.2f}x" if is_judged else "not reached"
        print(f"  judged: best {fastest}, emitted {told}", flush=True)


if __name__ == "__main__":
    main()
