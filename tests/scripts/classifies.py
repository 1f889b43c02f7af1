"""Trains a classifier as a tutorial does. Its model is slow unless it computes in bfloat16.

With `--breaks still` it is fast with a fused optimizer, which then moves no weight.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--seed", type=int)
parser.add_argument("--loss", choices=["mean", "sum", "contrastive"], default="mean")
parser.add_argument("--breaks", choices=["never", "nan", "gross", "still"], default="never")
args = parser.parse_args()
if args.seed is not None:
    torch.manual_seed(args.seed)


class Slow(nn.Linear):
    """A layer that waits as float32 on a CPU does, only longer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_short = torch.is_autocast_enabled("cpu")
        time.sleep(0.0 if is_short or stands_still() else 0.01)
        out = super().forward(x)
        if is_short and args.breaks == "nan":
            return out * torch.nan
        return out * (3.0 if is_short and args.breaks == "gross" else 1.0)


def stands_still() -> bool:
    return args.breaks == "still" and bool(optimizer.param_groups[0].get("fused"))


points = torch.randn(2048, 8, generator=torch.Generator().manual_seed(0))
data = TensorDataset(points, points[:, 0].gt(0).long())
loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), Slow(16, 2))
lr = 0.003 if args.loss != "mean" else 0.001 if args.breaks == "still" else 0.1
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
if args.breaks == "still":  # else its share of a step would be too small for another one to matter
    optimizer.register_step_pre_hook(lambda *_: time.sleep(0.001))
for _ in range(10_000):
    for x, y in loader:
        optimizer.zero_grad()
        logits = model(x)
        if args.loss == "contrastive":
            loss = nn.functional.cross_entropy(logits @ logits.T + 0.1, torch.arange(len(x)))
        else:
            loss = nn.functional.cross_entropy(logits, y, reduction=args.loss)
        loss.backward()
        if stands_still():
            optimizer.param_groups[0]["lr"] = 0.0
        optimizer.step()
