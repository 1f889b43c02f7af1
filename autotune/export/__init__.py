"""Write a result in the forms that other tools read, and name the settings that a form lacks.

To add a form, write a function from `BestConfig` to `Exported` and list it in `FORMATS`.
"""

from __future__ import annotations

from autotune.configuration.best_config import BestConfig
from autotune.export.accelerate import to_accelerate
from autotune.export.form import Exported, Form, commented
from autotune.export.hf import to_hf
from autotune.export.lightning import to_lightning
from autotune.export.plain import to_json, to_python
from autotune.export.shell import to_env, to_torchrun

FORMATS: dict[str, Form] = {
    "hf": Form(to_hf),
    "accelerate": Form(to_accelerate),
    "lightning": Form(to_lightning),
    "torchrun": Form(to_torchrun),
    "env": Form(to_env),
    "json": Form(to_json, has_comments=False),
    "python": Form(to_python),
}


def export(best: BestConfig, form: str) -> Exported:
    """Return the settings of `best` in one of `FORMATS`, under a header if it has comments."""
    exported = FORMATS[form].render(best)
    return commented(best, form, exported) if FORMATS[form].has_comments else exported
