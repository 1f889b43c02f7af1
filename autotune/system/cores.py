"""Pin a child to cores: its environment names them, and it takes them before importing torch.

Torch and OpenMP read the set of cores once, when they start their threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

VARIABLE = "AUTOTUNE_CORES"


def environ_for(cores: Iterable[int]) -> dict[str, str]:
    """Return the environment variable that pins a child to `cores`; empty for no cores."""
    text = ",".join(map(str, cores))
    return {VARIABLE: text} if text else {}


def stay_on_cores() -> None:
    """Pin this process, and the processes that it will start, to the cores of the environment."""
    cores = os.environ.get(VARIABLE)
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, map(int, cores.split(",")))
