"""A script whose settings have certain places, and results to write there as a patch."""

from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from factories import best_config

BASELINE = TrainingConfig.of({"batch_size": 16, "num_threads": 2})
SCRIPT = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=1e-4)
args = parser.parse_args()
data = TensorDataset(torch.randn(512, 4), torch.randn(512, 1))
loader = DataLoader(
    data,
    batch_size=args.batch_size,
    num_workers=0,  # ä
)
held_out = DataLoader(data, batch_size=64)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
for epoch in range(100000):
    for x, y in loader:
        optimizer.zero_grad()
        prediction = model(
            x,
        )
        loss = nn.functional.mse_loss(prediction, y)
        loss.backward()
        optimizer.step()
"""
SHUFFLED = SCRIPT.replace("    data,\n", "    data,\n    shuffle=True,\n")
CHANGES = {
    "batch_size": (64, '"--batch-size", type=int, default=64)'),
    "num_workers": (2, "num_workers=2,  # ä"),
    "num_threads": (1, "TensorDataset\ntorch.set_num_threads(1)\n\nparser"),
    "cudnn_benchmark": (True, "torch.backends.cudnn.benchmark = True\n"),
    "float32_matmul_precision": ("high", "torch.set_float32_matmul_precision('high')\n"),
    "optimizer_impl": ("fused", "lr=args.lr, fused=True)"),
    "channels_last": (True, "model.to(memory_format=torch.channels_last)\noptimizer ="),
    "compile_mode": ("default", "model.compile(mode='default')\noptimizer ="),
    "amp_dtype": (
        "bfloat16",
        "        with torch.autocast('cpu', torch.bfloat16):\n"
        "            prediction = model(\n                x,\n            )\n        loss =",
    ),
}


def answer(**settings: Value) -> BestConfig:
    """A result of `train.py` with these settings, whose batch size a flag carries."""
    best = best_config(BASELINE.replace(**settings), BASELINE)
    maps = ("batch_size=--batch-size",)
    named = {"model": "train.py", "arguments_sha256": "0" * 64, "maps": maps}
    return best.model_copy(update={"provenance": best.provenance.model_copy(update=named)})
