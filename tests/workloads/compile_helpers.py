"""Starts the processes with which torch.compile compiles beside training, and hangs."""

import time

import psutil
from plain import BASELINE, build_dataset, compute_loss  # noqa: F401
from torch import nn
from torch._inductor.async_compile import AsyncCompile


def build_model():
    AsyncCompile.process_pool()
    print(f"{len(psutil.Process().children(recursive=True))} helpers", flush=True)
    time.sleep(600)
    return nn.Linear(8, 2)
