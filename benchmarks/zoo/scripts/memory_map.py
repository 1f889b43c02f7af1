"""Train a small GPT on letters that are drawn from a memory map, without a DataLoader."""

import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

batch_size = 16
block_size = 64
gradient_accumulation_steps = 2
learning_rate = 1e-3
max_iters = 4000
for argument in sys.argv[1:]:
    name, value = argument.removeprefix("--").split("=")
    assert name in globals(), f"unknown setting {name}"
    globals()[name] = type(globals()[name])(value)

device = "cuda" if torch.cuda.is_available() else "cpu"
corpus = np.frombuffer(
    b"the quick brown fox jumps over the lazy dog, again and again. " * 4000, "u1"
)
path = tempfile.NamedTemporaryFile(suffix=".bin")
corpus.tofile(path.name)


def get_batch():
    data = np.memmap(path.name, dtype=np.uint8, mode="r")
    starts = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in starts])
    y = torch.stack(
        [torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in starts]
    )
    return x.to(device), y.to(device)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(c, dim=2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=128, layers=3, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(block_size, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, 256)

    def forward(self, x, targets):
        hidden = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        logits = self.head(self.blocks(hidden))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
x, y = get_batch()
for step in range(max_iters):
    for _ in range(gradient_accumulation_steps):
        logits, loss = model(x, y)
        loss = loss / gradient_accumulation_steps
        x, y = get_batch()
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item() * gradient_accumulation_steps:.4f}")
