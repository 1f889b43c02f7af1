"""Export to a torchrun command line, which starts training in the environment that it needs."""

from __future__ import annotations

import shlex

from autotune.configuration.best_config import BestConfig
from autotune.export.env import carried, variables
from autotune.export.form import Exported, left_out


def to_torchrun(best: BestConfig) -> Exported:
    """Return a shell script; its arguments are the training script and the script's arguments."""
    pairs = "".join(f"{name}={shlex.quote(value)} " for name, value in variables(best).items())
    command = f'exec env {pairs}torchrun --standalone --nproc-per-node 1 "$@"\n'
    use = "sh FILE train.py --its --arguments"
    return Exported(command, left_out(best, carried(best)), use)
