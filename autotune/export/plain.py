"""Export to the settings themselves: a JSON object, or a Python module that imports nothing."""

from __future__ import annotations

import json

from autotune.configuration.best_config import BestConfig
from autotune.export.form import LR_FACTOR, Exported
from autotune.knobs import knob_named


def to_json(best: BestConfig) -> Exported:
    """Return all settings by name, and the learning rate's factor if it is not 1."""
    factor = best.lr_scaling.factor
    rate = {} if factor == 1 else {LR_FACTOR: factor}
    return Exported(json.dumps({**best.training_config.as_dict(), **rate}, indent=2) + "\n")


def to_python(best: BestConfig) -> Exported:
    """Return all settings as a literal, each beside the call of PyTorch that applies it."""
    lines = [
        f"    {name!r}: {value!r},  # {knob_named(name).call}\n"
        for name, value in best.training_config.as_dict().items()
    ]
    factor = best.lr_scaling.factor
    rate = "" if factor == 1 else f"{LR_FACTOR.upper()} = {factor!r}\n"
    use = "from FILE import SETTINGS; each line names the call that applies it"
    return Exported("SETTINGS = {\n" + "".join(lines) + "}\n" + rate, use=use)
