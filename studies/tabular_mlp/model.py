"""Rows of a table, classified by a multilayer perceptron: many small samples, little computing.

scikit-learn draws the table: 40 columns, of which 20 tell something, and 8 classes. Each sample is
one row, as a DataFrame would give it, scaled when it is asked for. So a step is over in a moment,
and what surrounds it counts: putting a batch together, the update of the weights, the number of
steps.

What it teaches: in a small model the batch size is nearly all, until the model learns less of as
many rows. Half precision and more threads have little to take hold of.
"""

import numpy as np
import torch
from sklearn.datasets import make_classification
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

BASELINE = {"batch_size": 64, "num_workers": 0}

ROWS, HELD_OUT = 24_000, 4_000
COLUMNS, CLASSES = 40, 8


def build_model() -> nn.Module:
    """Three hidden layers of 256, with layer norm and dropout: 8 scores per row."""
    first, second, third = hidden(COLUMNS, 256), hidden(256, 256), hidden(256, 256)
    return nn.Sequential(*first, *second, *third, nn.Linear(256, CLASSES))


def hidden(inputs: int, outputs: int) -> list[nn.Module]:
    """One layer with what usually surrounds it."""
    return [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.GELU(), nn.Dropout(0.1)]


def build_dataset() -> Dataset:
    """The training rows as (values, label); values are (40,), scaled to unit variance."""
    values, labels = load_table()
    return ScaledRows(values[HELD_OUT:], labels[HELD_OUT:])


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy of a batch: values (batch, 40) and labels (batch,)."""
    values, labels = batch
    return functional.cross_entropy(model(values), labels)


@torch.no_grad()
def evaluate(model: nn.Module, device: torch.device) -> float:
    """The share of the held-out rows that the model puts into the right class, from 0 to 1."""
    values, labels = load_table()
    rows = torch.stack([row for row, _ in ScaledRows(values[:HELD_OUT], labels[:HELD_OUT])])
    model.eval()
    classes = model(rows.to(device)).argmax(dim=1).cpu()
    model.train()
    return (classes == torch.tensor(labels[:HELD_OUT])).float().mean().item()


class ScaledRows(Dataset):
    """Rows of a table, each scaled when it is asked for."""

    def __init__(self, values: np.ndarray, labels: np.ndarray) -> None:
        self.values, self.labels = values, labels
        self.mean, self.deviation = values.mean(axis=0), values.std(axis=0)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        row = (self.values[index] - self.mean) / self.deviation
        return torch.from_numpy(row.astype(np.float32)), int(self.labels[index])


def load_table() -> tuple[np.ndarray, np.ndarray]:
    """Values (rows, 40) and labels (rows,); the seed is fixed, so every trial gets the same."""
    of_values = {"n_features": COLUMNS, "n_informative": 20, "class_sep": 1.2}
    return make_classification(ROWS, n_classes=CLASSES, random_state=0, **of_values)
