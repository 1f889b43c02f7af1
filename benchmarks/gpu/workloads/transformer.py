"""The training of train_transformer.py as functions, for judge.py and rival.py.

autotune is given the script itself.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from train_transformer import (
    SMALL,
    TRAINING,
    Sequences,
    Transformer,
    collate,
    held_out_loss,
    loss_of,
)

BASELINE = {"batch_size": 8 if SMALL else 32, "num_workers": 0}
collate_fn = collate


def build_model() -> nn.Module:
    """Return the script's network."""
    return Transformer()


def build_dataset() -> Dataset:
    """Return the script's training set."""
    return Sequences(TRAINING, seed=0)


def compute_loss(model: nn.Module, batch: Tensor) -> Tensor:
    """Return the script's loss in nats, for tokens (batch, 129)."""
    return loss_of(model(batch[:, :-1]), batch[:, 1:])


def example_batch(batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return the network's inputs and its targets from a batch of tokens."""
    return batch[:, :-1], batch[:, 1:]


def evaluate(model: nn.Module, device: torch.device) -> float:
    """Return the negated loss on held-out sequences, so that higher is better."""
    return -held_out_loss(model, BASELINE["batch_size"], device)
