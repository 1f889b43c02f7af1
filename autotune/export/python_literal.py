"""Export to a Python module with the settings as a literal, which imports nothing."""

from __future__ import annotations

from autotune.configuration.best_config import BestConfig
from autotune.export.form import LR_FACTOR, Exported
from autotune.knobs import KNOBS


def to_python(best: BestConfig) -> Exported:
    """Return all settings, each beside the call of PyTorch that applies it."""
    lines = [
        f"    {name!r}: {value!r},  # {KNOBS[name].call}\n"
        for name, value in best.training_config.as_dict().items()
    ]
    factor = best.lr_scaling.factor
    rate = "" if factor == 1 else f"{LR_FACTOR.upper()} = {factor!r}\n"
    use = "from FILE import SETTINGS; each line names the call that applies it"
    return Exported("SETTINGS = {\n" + "".join(lines) + "}\n" + rate, use=use)
