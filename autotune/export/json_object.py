"""Export to one JSON object with a member for each setting."""

from __future__ import annotations

import json

from autotune.configuration.best_config import BestConfig
from autotune.export.form import LR_FACTOR, Exported


def to_json(best: BestConfig) -> Exported:
    """Return all settings by name, and the learning rate's factor if it is not 1."""
    factor = best.lr_scaling.factor
    rate = {} if factor == 1 else {LR_FACTOR: factor}
    return Exported(json.dumps({**best.training_config.as_dict(), **rate}, indent=2) + "\n")
