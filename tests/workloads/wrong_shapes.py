"""The model takes nine features, the dataset has eight."""

from plain import BASELINE, build_dataset  # noqa: F401
from torch import Tensor, nn
from torch.nn import functional


def build_model() -> nn.Module:
    return nn.Linear(9, 2)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    points, labels = batch
    return functional.cross_entropy(model(points), labels)
