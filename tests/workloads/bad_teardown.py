"""Trains well; only a process that ended as Python does would abort, or wait for a thread."""

import atexit
import os
import threading
import time

import plain
from plain import BASELINE, build_dataset, compute_loss, evaluate  # noqa: F401


def build_model():
    atexit.register(os.abort)
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return plain.build_model()
