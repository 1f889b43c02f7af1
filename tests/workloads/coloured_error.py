"""Raises an error whose text would retitle and clear a terminal."""

import torch  # noqa: F401


def build_dataset():
    raise ValueError("\x1b]0;owned\x07\x1b[2J\x9b31mÄrger\r\x08")


def build_model():
    raise AssertionError("never asked for")


def compute_loss(model, batch):
    raise AssertionError("never asked for")
