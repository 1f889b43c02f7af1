"""Train a small GPT on sequences of 128 tokens: a plain script that knows nothing of tuning.

    python train_transformer.py --batch-size 32 --epochs 1

The text is synthetic: each token depends on the one before by a fixed table, with noise, so that
the loss falls from about 6.2 towards 3. Every `--print-every` steps it prints the loss on held-out
sequences.
"""

import argparse
import os
import time

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

SMALL = bool(os.getenv("KIT_SMOKE"))  # tiny shapes, for a machine without a GPU
VOCABULARY = 64 if SMALL else 512
LENGTH = 16 if SMALL else 128
LAYERS, HEADS, WIDTH = (1, 2, 16) if SMALL else (6, 8, 512)
TRAINING, HELD_OUT = (512, 32) if SMALL else (16_384, 256)


class Transformer(nn.Module):
    """Six pre-norm layers with causal self-attention; tokens (batch, length) in, scores out."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.scores = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of each next token, shape (batch, length, vocabulary)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.scores(x)


class Layer(nn.Module):
    """Self-attention and two linear layers, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output, shape (batch, length, width) as the input."""
        parts = self.attention(self.before(x)).chunk(3, dim=2)
        query, key, value = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.wide(self.between(x))


class Sequences(TensorDataset):
    """Sequences of LENGTH + 1 tokens; one indexing operation makes a batch."""

    def __init__(self, samples: int, seed: int) -> None:
        table = torch.randint(VOCABULARY, (VOCABULARY, 4), generator=generator(1234))
        random = generator(seed)
        follow = torch.randint(4, (LENGTH + 1, samples), generator=random)
        noise = torch.randint(VOCABULARY, (LENGTH + 1, samples), generator=random)
        is_noise = torch.rand(LENGTH + 1, samples, generator=random) < 0.2
        tokens = [noise[0]]
        for place in range(1, LENGTH + 1):
            following = table[tokens[-1], follow[place]]
            tokens.append(torch.where(is_noise[place], noise[place], following))
        super().__init__(torch.stack(tokens, dim=1))

    def __getitems__(self, indices: list[int]) -> Tensor:
        return self.tensors[0][torch.tensor(indices)]


def generator(seed: int) -> torch.Generator:
    """Return a random generator, the same in every process."""
    return torch.Generator().manual_seed(seed)


def collate(samples: object) -> Tensor:
    """Return a batch as it is, and collate single samples into one."""
    return torch.stack([sample[0] for sample in samples]) if isinstance(samples, list) else samples


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of the next tokens, in nats."""
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def held_out_loss(model: nn.Module, batch_size: int, device: torch.device) -> float:
    """Return the loss on held-out sequences, in nats."""
    tokens = Sequences(HELD_OUT, seed=1).tensors[0].to(device)
    with torch.no_grad():
        parts = [loss_of(model(t[:, :-1]), t[:, 1:]) * len(t) for t in tokens.split(batch_size)]
    return float(sum(parts)) / HELD_OUT


def main() -> None:
    """Train, and print the loss and the sequences per second."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8 if SMALL else 32)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--print-every", type=int, default=20 if SMALL else 50)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)

    train = DataLoader(
        Sequences(TRAINING, seed=0),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
    )
    model = Transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    steps, start = 0, time.perf_counter()
    for epoch in range(args.epochs):
        for tokens in train:
            tokens = tokens.to(device, non_blocking=True)  # noqa: PLW2901 - as scripts do
            optimizer.zero_grad(set_to_none=True)
            loss_of(model(tokens[:, :-1]), tokens[:, 1:]).backward()
            optimizer.step()
            steps += 1
            if steps % args.print_every == 0:
                model.eval()
                pace = steps * args.batch_size / (time.perf_counter() - start)
                loss = held_out_loss(model, args.batch_size, device)
                print(f"epoch {epoch} step {steps} val loss {loss:.4f}, {pace:.1f} sequences/s")
                model.train()


if __name__ == "__main__":
    main()
