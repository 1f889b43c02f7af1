"""A batch above 32 breaks an assumption of the user's own code."""

import plain
from plain import BASELINE, build_dataset, build_model, build_optimizer, evaluate  # noqa: F401


def compute_loss(model, batch):
    if len(batch[0]) > 32:
        raise ValueError("only 32 slots in the memory bank")
    return plain.compute_loss(model, batch)
