"""The next character of Python's own documentation, predicted by a small transformer.

The text is what `help("for")` and its like print; it comes with Python, so nothing is downloaded.

What it teaches: a workload without `evaluate`. The quality is then the loss on a slice of the
dataset that autotune keeps out of training. That is honest only where no item repeats another,
which is why the windows below do not overlap.
"""

from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

BASELINE = {"batch_size": 16}

ALPHABET = 128  # ASCII
CONTEXT = 64
LAYERS, HEADS, WIDTH = 2, 4, 128


def build_model() -> nn.Module:
    """A decoder-only transformer that gives 128 scores for each next character."""
    return Transformer()


def build_dataset() -> Dataset:
    """Consecutive windows of 65 character codes: 64 to read, and each one's successor."""
    text = "".join(topics.values()).encode("ascii", errors="replace")
    codes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    windows = len(codes) // (CONTEXT + 1)
    return TensorDataset(codes[: windows * (CONTEXT + 1)].view(windows, CONTEXT + 1))


def compute_loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    """Mean cross entropy of the next characters, in nats; the windows are (batch, 65)."""
    (windows,) = batch
    scores = model(windows[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())


class Transformer(nn.Module):
    """Maps codes (batch, length) to scores (batch, length, alphabet)."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(ALPHABET, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.scores = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, ALPHABET))

    def forward(self, codes: Tensor) -> Tensor:
        """Add what a character is to where it stands, and pass the sum through the blocks."""
        places = torch.arange(codes.shape[1], device=codes.device)
        return self.scores(self.blocks(self.characters(codes) + self.positions(places)))


class Block(nn.Module):
    """Causal self-attention, then two linear layers, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH))
        self.project = nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Let every position of x (batch, length, width) look at those before it, and at itself."""
        query, key, value = (
            part.unflatten(2, (HEADS, -1)).transpose(1, 2)
            for part in self.attention(x).chunk(3, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_forward(x)
