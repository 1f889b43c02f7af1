"""A network of BERT-base's shape that finds answers in 384 tokens, as in fine-tuning on SQuAD.

Twelve layers of width 768, post-norm, from scratch. The text is made up: an answer begins and ends
with a token of its own, so that the loss falls.
"""

import os

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

SMALL = bool(os.getenv("KIT_SMOKE"))  # tiny shapes, for a machine without a GPU
VOCABULARY = 64 if SMALL else 30_522
LENGTH = 16 if SMALL else 384
LAYERS, HEADS, WIDTH = (1, 2, 16) if SMALL else (12, 12, 768)
TRAINING, HELD_OUT = (256, 32) if SMALL else (8_192, 256)
FIRST, LAST = 1, 2  # tokens at both ends of an answer

BASELINE = {"batch_size": 4 if SMALL else 32, "num_workers": 0}


class Bert(nn.Module):
    """Tokens (batch, length) in, scores of each place as first and last (batch, length, 2) out."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.scores = nn.Linear(WIDTH, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of each place."""
        x = self.tokens(tokens) + self.positions.weight
        return self.scores(self.encoder(self.norm(x)))


class Texts(TensorDataset):
    """Texts with an answer each: tokens (LENGTH,), and the places of its first and last token."""

    def __init__(self, samples: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        tokens = torch.randint(LAST + 1, VOCABULARY, (samples, LENGTH), generator=random)
        places = torch.randint(LENGTH - 1, (samples, 2), generator=random).sort(1).values
        places[:, 1] += 1
        tokens.scatter_(1, places, torch.tensor([[FIRST, LAST]]).expand(samples, 2))
        super().__init__(tokens, places)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        chosen = torch.tensor(indices)
        return self.tensors[0][chosen], self.tensors[1][chosen]


def collate_fn(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return what one indexing operation gave."""
    return batch


def build_model() -> nn.Module:
    """Return the network, freshly initialised."""
    return Bert()


def build_dataset() -> Texts:
    """Return 8,192 texts."""
    return Texts(TRAINING, seed=0)


def build_optimizer(parameters: list[nn.Parameter], **options: bool) -> torch.optim.Optimizer:
    """Return AdamW with the learning rate of a training from scratch."""
    return torch.optim.AdamW(parameters, lr=1e-4, **options)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean cross entropy of the first and the last place."""
    return loss_of(model(batch[0]), batch[1])


def loss_of(scores: Tensor, places: Tensor) -> Tensor:
    """Return the loss of scores (batch, length, 2) for places (batch, 2)."""
    return functional.cross_entropy(scores.float(), places)


def evaluate(model: nn.Module, device: torch.device) -> float:
    """Return the negated loss on held-out texts, so that higher is better."""
    texts = Texts(HELD_OUT, seed=1)
    total = 0.0
    for first in range(0, HELD_OUT, BASELINE["batch_size"]):
        part = range(first, min(HELD_OUT, first + BASELINE["batch_size"]))
        tokens, places = texts.__getitems__(list(part))
        with torch.no_grad():
            loss = loss_of(model(tokens.to(device)), places.to(device))
        total += len(part) * float(loss)
    return -total / HELD_OUT
