"""Waits for the device and copies to the host in every step, as code that logs its loss does."""

import time

import plain
import torch
from plain import BASELINE, build_dataset, build_model  # noqa: F401

SECONDS_PER_STEP = 0.002

logged: list[float] = []


def compute_loss(model, batch):
    loss = plain.compute_loss(model, batch)
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    logged.append(loss.item())
    for parameter in model.parameters():
        parameter.detach().cpu()
    time.sleep(SECONDS_PER_STEP)
    return loss
