"""Trains a small transformer as a tuned script of today does: everything is set by hand.

A memory map instead of a loader, TF32, a fused optimizer, torch.compile, autocast outside of the
model, a scaler that is off beside bfloat16, and gradients that are clipped.
"""

import sys
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn import functional

steps, block, batch, width = int(sys.argv[1]), 16, 8, 32
torch.manual_seed(1337)
torch.set_float32_matmul_precision("high")
data = (np.arange(4096) % 64).astype(np.uint16)
dtype = "bfloat16"
under = nullcontext() if dtype == "float32" else torch.autocast("cpu", getattr(torch, dtype))


def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.randint(len(data) - block, (batch,))
    rows = [torch.from_numpy(data[i : i + block + 1].astype(np.int64)) for i in places]
    return torch.stack([row[:-1] for row in rows]), torch.stack([row[1:] for row in rows])


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(64, width), nn.Embedding(block, width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, 64)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.tokens(x) + self.places(torch.arange(block))
        q, k, v = (part.unsqueeze(1) for part in self.attention(h).chunk(3, dim=-1))
        h = h + functional.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)
        logits = self.out(h)
        return logits, functional.cross_entropy(logits.view(-1, 64), y.view(-1))


model = GPT()
scaler = torch.amp.GradScaler("cpu", enabled=dtype == "float16")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
model = torch.compile(model)
for step in range(steps):
    x, y = get_batch()
    with under:
        logits, loss = model(x, y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step == 5:
        print(logits.dtype, flush=True)
