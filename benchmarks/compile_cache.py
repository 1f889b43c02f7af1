"""Time the first compiled step with an empty cache, with loaded artifacts and with a warm cache.

    python -m benchmarks.compile_cache [--rounds N] [--device cuda]

Each round starts three fresh processes in turn, in another order each time, which train a small GPT
with torch.compile to the end of the first step:

* empty: an empty cache folder, as in a new container
* artifacts: an empty one, filled by `torch.compiler.load_cache_artifacts`; reading the file counts
* warm: the folder of an earlier process, as torch keeps it in the temporary directory

The seconds begin with `import torch` done, so that they hold building, compiling and the step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import permutations
from pathlib import Path
from statistics import median

WAYS = ("empty", "artifacts", "warm")


def main() -> None:
    """Run the rounds and print a table; or train, as the process of a round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--train", choices=("save", *WAYS))
    parser.add_argument("--artifacts", type=Path)
    asked = parser.parse_args()
    if asked.train:
        train(asked.device, asked.train, asked.artifacts)
        return
    with tempfile.TemporaryDirectory() as name:
        warm, artifacts = Path(name) / "warm", Path(name) / "artifacts"
        seconds = started(asked.device, "save", warm, artifacts)
        print(f"saved after {seconds:.2f} s: {artifacts.stat().st_size / 1e6:.2f} MB", flush=True)
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        orders = list(permutations(WAYS))
        for number in range(asked.rounds):
            for way in orders[number % len(orders)]:
                with tempfile.TemporaryDirectory() as empty:
                    folder = warm if way == "warm" else Path(empty)
                    found[way].append(started(asked.device, way, folder, artifacts))
            print("  ".join(f"{way} {found[way][-1]:.2f} s" for way in WAYS), flush=True)
    for way in WAYS:
        ratios = [one / own for one, own in zip(found[way], found["empty"], strict=True)]
        low, high = min(found[way]), max(found[way])
        print(
            f"| {way} | {median(found[way]):.2f} ({low:.2f} to {high:.2f}) | {median(ratios):.2f} |"
        )


def started(device: str, way: str, folder: Path, artifacts: Path) -> float:
    """Return the seconds that a fresh process says."""
    words = ("--device", device, "--train", way, "--artifacts", str(artifacts))
    environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    command = [sys.executable, "-m", "benchmarks.compile_cache", *words]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def train(device: str, way: str, artifacts: Path) -> None:
    """Print the seconds until the first step has ended; save or load the artifacts if asked to."""
    import torch
    from torch import nn

    start = time.perf_counter()
    if way == "artifacts":
        torch.compiler.load_cache_artifacts(artifacts.read_bytes())
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    parts = (nn.Embedding(256, 128), nn.TransformerEncoder(layer, 4), nn.Linear(128, 256))
    model = nn.Sequential(*parts).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(256, (16, 64), device=device)
    compiled = torch.compile(model)
    nn.functional.cross_entropy(compiled(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    float(next(model.parameters()).sum())
    print(time.perf_counter() - start)
    if way == "save" and (saved := torch.compiler.save_cache_artifacts()) is not None:
        artifacts.write_bytes(saved[0])


if __name__ == "__main__":
    main()
