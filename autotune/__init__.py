"""autotune: the settings under which a PyTorch model trains fastest on this machine.

`autotune search model.py` measures, `best.yaml` is the answer, `autotune.load` reads it back.
Nothing heavy is imported here: neither torch nor Optuna.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autotune.version import __version__

if TYPE_CHECKING:
    from autotune.production import Best

__all__ = ["__version__", "load"]


def load(path: str | Path) -> Best:
    """Read a best.yaml, checked against its schema, ready to be put into force.

    Raises:
        UsageError: the file is missing, not valid, or written by a newer autotune.
    """
    from autotune.best import read_best
    from autotune.production import Best

    return Best(read_best(Path(path)))
