"""autotune: the settings under which a PyTorch model trains fastest on this machine.

`autotune search model.py` measures, `best.yaml` is the answer, `autotune.load` reads it back.
Nothing heavy is imported here: neither torch nor Optuna.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.best import BestConfig

__all__ = ["__version__", "load"]
__version__ = "0.1.0"


def load(path: str | Path) -> BestConfig:
    """Read a best.yaml, checked against its schema.

    Raises:
        UsageError: the file is missing, not valid, or written by a newer autotune.
    """
    from autotune.best import read_best

    return read_best(Path(path))
