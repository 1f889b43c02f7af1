"""Environment variables for a shell; PyTorch reads few of its settings from there."""

from __future__ import annotations

import shlex

from autotune.best import BestConfig
from autotune.config import environ_of
from autotune.export.form import Exported, left_out
from autotune.knobs import ALL_KNOBS


def to_env(best: BestConfig) -> Exported:
    """Lines for a shell to read, with `. FILE`."""
    exports = "".join(f"export {name}={shlex.quote(v)}\n" for name, v in variables(best).items())
    use = ". FILE, in the shell that starts training"
    return Exported(exports, left_out(best, carried(best)), use)


def variables(best: BestConfig) -> dict[str, str]:
    """Every setting that the environment can carry, by the variable that does."""
    config = best.training_config
    found = environ_of(config)
    if config["num_threads"] is not None:
        found = {"OMP_NUM_THREADS": str(config["num_threads"]), **found}
    if config["compile_mode"] is None:
        found["TORCH_COMPILE_DISABLE"] = "1"
    return found


def carried(best: BestConfig) -> set[str]:
    """The knobs that `variables` carry."""
    config = best.training_config
    names = {"num_threads", *(k.name for k in ALL_KNOBS if k.environ(config[k.name]))}
    return names | ({"compile_mode"} if config["compile_mode"] is None else set())
