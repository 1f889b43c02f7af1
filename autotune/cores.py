"""Which cores a child may use: told by its environment, taken before torch is imported.

Torch and OpenMP look at the cores once, when they start their threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

VARIABLE = "AUTOTUNE_CORES"


def environ_for(cores: Iterable[int]) -> dict[str, str]:
    """What tells a child to stay on these cores; empty for none in particular."""
    text = ",".join(map(str, cores))
    return {VARIABLE: text} if text else {}


def stay_on_cores() -> None:
    """Heed the environment; what this process starts heeds it, too."""
    cores = os.environ.get(VARIABLE)
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, map(int, cores.split(",")))
