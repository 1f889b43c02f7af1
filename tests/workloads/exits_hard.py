"""build_model ends the process without Python noticing."""

import os

from plain import BASELINE, build_dataset, compute_loss  # noqa: F401


def build_model():
    os._exit(7)
