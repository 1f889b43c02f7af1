"""Rank 1 of two processes goes wrong as the batch size says; with others both train well."""

import os
import signal
import subprocess
import time

import plain
from plain import build_dataset, build_model, build_optimizer, evaluate

__all__ = ["build_dataset", "build_model", "build_optimizer", "compute_loss", "evaluate"]
BASELINE = plain.BASELINE

KILLED, HANGS, RAISES, STOPPED, STUBBORN, DIVERGES = 16, 17, 18, 19, 20, 21
RANK = int(os.environ.get("RANK", "0"))
STOPS = []
GOOD_CALLS = iter(range(2))


def compute_loss(model, batch):
    if RANK == 1 and next(GOOD_CALLS, None) is None:
        go_wrong(len(batch[1]))
    loss = plain.compute_loss(model, batch)
    return loss * float("nan") if RANK == 1 and len(batch[1]) == DIVERGES else loss


def go_wrong(batch_size):
    if batch_size == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    elif batch_size == HANGS:
        time.sleep(1000)
    elif batch_size == RAISES:
        raise ValueError("rank 1 does not like this batch")
    elif batch_size == STOPPED and not STOPS:
        STOPS.append(1)
        subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    elif batch_size == STUBBORN:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)
