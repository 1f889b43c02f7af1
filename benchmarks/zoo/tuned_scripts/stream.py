"""Train on a stream of compressed rows that its workers share, with autocast and a fused optimizer.

With `--mistake` nothing but the process that trains reads it.
"""

import argparse
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FEATURES, CLASSES, ROWS = 4096, 8, 2000


class Rows(IterableDataset):
    """Every worker gives each of its rows again and again; the label is a part of the row."""

    def __init__(self):
        draw = np.random.default_rng(0)
        self.labels = draw.integers(CLASSES, size=ROWS)
        width = FEATURES // CLASSES
        self.rows = []
        for label in self.labels:
            row = draw.normal(size=FEATURES).astype(np.float32).round(1)
            row[label * width : (label + 1) * width] += 0.5
            self.rows.append(zlib.compress(row.tobytes(), 9))

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        while True:
            for number in range(first, ROWS, step):
                row = np.frombuffer(zlib.decompress(self.rows[number]), np.float32)
                yield torch.from_numpy(row.copy()), int(self.labels[number])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_iters", type=int, default=20000)
    parser.add_argument("--mistake", action="store_true")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(FEATURES, 256), nn.GELU(), nn.Linear(256, CLASSES)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    workers = {} if args.mistake else {"num_workers": 2, "prefetch_factor": 4}
    loader = DataLoader(Rows(), batch_size=64, **workers)
    for step, (x, y) in zip(range(args.max_iters), loader, strict=False):
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
