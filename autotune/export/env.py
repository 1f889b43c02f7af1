"""Export to environment variables for a shell, which carry few of PyTorch's settings."""

from __future__ import annotations

import shlex

from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import environ_of
from autotune.export.form import Exported, left_out
from autotune.knobs import ALL_KNOBS


def to_env(best: BestConfig) -> Exported:
    """Return lines that a shell reads with `. FILE`."""
    exports = "".join(f"export {name}={shlex.quote(v)}\n" for name, v in variables(best).items())
    use = ". FILE, in the shell that starts training"
    return Exported(exports, left_out(best, carried(best)), use)


def variables(best: BestConfig) -> dict[str, str]:
    """Return environment variable to value, for each setting that a variable can carry."""
    config = best.training_config
    found = environ_of(config)
    if config["num_threads"] is not None:
        found = {"OMP_NUM_THREADS": str(config["num_threads"]), **found}
    if config["compile_mode"] is None:
        found["TORCH_COMPILE_DISABLE"] = "1"
    return found


def carried(best: BestConfig) -> set[str]:
    """Return the names of the knobs that `variables` carry."""
    config = best.training_config
    names = {"num_threads", *(k.name for k in ALL_KNOBS if k.environ(config[k.name]))}
    return names | ({"compile_mode"} if config["compile_mode"] is None else set())
