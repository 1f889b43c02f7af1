"""build_model ends the program as a script would."""

import sys

from plain import BASELINE, build_dataset, compute_loss  # noqa: F401
from torch import nn


def build_model() -> nn.Module:
    sys.exit("no licence found")
