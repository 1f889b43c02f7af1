"""build_model starts a program that leaves its session and its parents, as daemons do."""

import os
import time

import plain
from plain import BASELINE, build_dataset, compute_loss  # noqa: F401


def build_model():
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
    os.waitpid(first, 0)
    return plain.build_model()
