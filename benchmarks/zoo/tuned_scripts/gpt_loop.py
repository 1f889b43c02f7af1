"""Train a small GPT as a tuned loop does: autocast, torch.compile, fused AdamW, TF32.

With `--mistake` it sets the threads of a larger machine.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

CORPUS = torch.frombuffer(
    bytearray(b"the quick brown fox jumps over the lazy dog, again and again. " * 4000),
    dtype=torch.uint8,
)
BLOCK = 64


def get_batch(size, device):
    starts = torch.randint(len(CORPUS) - BLOCK - 1, (size,))
    rows = torch.stack([CORPUS[start : start + BLOCK + 1] for start in starts]).long()
    return rows[:, :-1].to(device), rows[:, 1:].to(device)


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
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(BLOCK, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, 256)

    def forward(self, x, targets):
        hidden = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        logits = self.head(self.blocks(hidden))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--max_iters", type=int, default=4000)
    parser.add_argument("--mistake", action="store_true")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    if args.mistake:
        torch.set_num_threads(16)
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    model = torch.compile(model)
    for step in range(args.max_iters):
        x, y = get_batch(args.batch_size, device)
        with torch.autocast(device, torch.bfloat16):
            loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
