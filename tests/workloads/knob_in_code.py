"""Trains as plain.py does, slower by what a knob of its own says."""

import time

import plain
from plain import build_dataset, build_model, build_optimizer, evaluate  # noqa: F401
from torch import Tensor, nn

from autotune.knobs.base import Knob, OneOf

BASELINE = plain.BASELINE
STATE = {"pause": 5}


class Pause(Knob):
    """Milliseconds of sleep in each step."""

    name = "pause"
    summary = "Milliseconds of sleep in each step."
    values = OneOf((5, 0))
    default = 5
    effect = "exact"

    def on_process(self, value):
        STATE["pause"] = value

    def read_back(self, setup):
        return STATE["pause"]


class Untold(Knob):
    """Asks for a larger limit, and is told another one in force."""

    name = "untold"
    summary = "A setting that never takes effect."
    values = OneOf((False, True))
    default = False

    def read_back(self, setup):
        return False


KNOBS = [Pause(), Untold()]


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    time.sleep(0.001 * STATE["pause"])
    return plain.compute_loss(model, batch)
