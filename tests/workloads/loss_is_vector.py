"""compute_loss returns one loss per sample instead of one per batch."""

from plain import BASELINE, build_dataset, build_model  # noqa: F401
from torch.nn import functional


def compute_loss(model, batch):
    points, labels = batch
    return functional.cross_entropy(model(points), labels, reduction="none")
