"""build_dataset returns no dataset."""

from plain import BASELINE, build_model, compute_loss  # noqa: F401


def build_dataset():
    return 256
