"""Export to the settings themselves: a JSON object, or a Python module that imports nothing."""

from __future__ import annotations

import json

from autotune.configuration.best_config import BestConfig
from autotune.export.form import LR_FACTOR, Exported
from autotune.export.ranks import PROCESSES, PROCESSES_PER_HOST
from autotune.knobs import knob_named
from autotune.knobs.base import Value


def to_json(best: BestConfig) -> Exported:
    """Return all settings by name, and what they rest on beside them."""
    facts = {**best.training_config.as_dict(), **_beside(best)}
    return Exported(json.dumps(facts, indent=2) + "\n")


def to_python(best: BestConfig) -> Exported:
    """Return all settings as a literal, each beside the call of PyTorch that applies it."""
    lines = [
        f"    {name!r}: {value!r},  # {knob_named(name).call}\n"
        for name, value in best.training_config.as_dict().items()
    ]
    beside = "".join(f"{name.upper()} = {value!r}\n" for name, value in _beside(best).items())
    use = "from FILE import SETTINGS; each line names the call that applies it"
    return Exported("SETTINGS = {\n" + "".join(lines) + "}\n" + beside, use=use)


def _beside(best: BestConfig) -> dict[str, Value]:
    """Return what is no setting but goes with them: processes, and the learning rate's factor.

    batch_size is of each process. What is as for one process and as model.py has it is left out.
    """
    factor = best.lr_scaling.factor
    found: dict[str, Value] = {
        PROCESSES: best.processes,
        PROCESSES_PER_HOST: best.processes_per_host,
        LR_FACTOR: None if factor == 1 else factor,
    }
    return {name: value for name, value in found.items() if value is not None}
