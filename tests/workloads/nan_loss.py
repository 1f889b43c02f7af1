"""The loss is not a number from the first step on."""

import plain
from plain import BASELINE, build_dataset, build_model  # noqa: F401


def compute_loss(model, batch):
    return plain.compute_loss(model, batch) * float("nan")
