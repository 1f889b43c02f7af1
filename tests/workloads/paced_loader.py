"""Each sample takes 2 ms to load, by the clock; the first step holds training up for a second."""

import time

import torch
from torch import nn
from torch.utils.data import Dataset

SECONDS_PER_SAMPLE = 0.002
STALL_SECONDS = 1.0
# A sample may come so much too late and be made up for by the next ones.
LEEWAY_SECONDS = 0.008

stalled = []


def build_model():
    return nn.Linear(4, 1)


def build_dataset():
    return Paced()


def compute_loss(model, batch):
    if not stalled:
        stalled.append(True)
        time.sleep(STALL_SECONDS)
    return model(batch).square().mean()


class Paced(Dataset):
    def __init__(self):
        self.due = 0.0

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        now = time.perf_counter()
        self.due = max(self.due, now - LEEWAY_SECONDS) + SECONDS_PER_SAMPLE
        time.sleep(max(0.0, self.due - now))
        return torch.ones(4)
