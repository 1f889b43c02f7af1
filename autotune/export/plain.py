"""Export to plain JSON, Python, environment variables, or a command line of torchrun."""

from __future__ import annotations

import json
import shlex

from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import environ_of
from autotune.export import form
from autotune.knobs import knob_named
from autotune.knobs.base import Value

_REASONS = {"TORCH_COMPILE_DISABLE": "  # trains without torch.compile (compile_mode: null)"}


def to_json(best: BestConfig) -> form.Exported:
    """Return all settings by name, with the processes and the learning rate's factor."""
    facts = {**best.training_config.as_dict(), **_beside(best)}
    return form.Exported(json.dumps(facts, indent=2) + "\n")


def to_python(best: BestConfig) -> form.Exported:
    """Return all settings as a literal, each with the PyTorch call that applies it."""
    lines = [
        f"    {name!r}: {value!r},  # {knob_named(name).call}\n"
        for name, value in best.training_config.as_dict().items()
    ]
    beside = "".join(f"{name.upper()} = {value!r}\n" for name, value in _beside(best).items())
    use = "from FILE import SETTINGS; each line names the call that applies it"
    return form.Exported("SETTINGS = {\n" + "".join(lines) + "}\n" + beside, use=use)


def _beside(best: BestConfig) -> dict[str, Value]:
    """Return the processes and the learning rate's factor, unless one process and 1."""
    factor = best.lr_scaling.factor
    found: dict[str, Value] = {
        form.PROCESSES: best.processes,
        form.LR_FACTOR: None if factor == 1 else factor,
    }
    return {name: value for name, value in found.items() if value is not None}


def to_env(best: BestConfig) -> form.Exported:
    """Return lines that a shell reads with `. FILE`."""
    exports = "".join(
        f"export {name}={shlex.quote(value)}{_REASONS.get(name, '')}\n"
        for name, value in _variables(best).items()
    )
    use = ". FILE, in the shell that starts training"
    return form.Exported(exports, form.left_out(best, _carried(best)), use)


def to_torchrun(best: BestConfig) -> form.Exported:
    """Return a shell script; its arguments are the training script and the script's arguments."""
    pairs = "".join(f"{name}={shlex.quote(value)} " for name, value in _variables(best).items())
    words = "".join(f" {shlex.quote(word)}" for word in form.own_words(best))
    launcher = f"torchrun --standalone --nproc-per-node {best.processes or 1}"
    command = f'exec env {pairs}{launcher} "$@"{words}\n'
    carried = (
        _carried(best) | {form.PROCESSES} | {f"flags.{name}" for name in form.carried_flags(best)}
    )
    return form.Exported(
        command, form.left_out(best, carried), "sh FILE train.py --its --arguments"
    )


def _variables(best: BestConfig) -> dict[str, str]:
    """Return environment variable to value, for each setting that a variable can carry."""
    config = best.training_config
    found = environ_of(config)
    if config["num_threads"] is not None:
        found = {"OMP_NUM_THREADS": str(config["num_threads"]), **found}
    if config["compile_mode"] is None:
        found["TORCH_COMPILE_DISABLE"] = "1"
    return found


def _carried(best: BestConfig) -> set[str]:
    """Return the names of the knobs that `_variables` carries."""
    config = best.training_config
    names = {"num_threads", *(k.name for k, value in config.items() if k.environ(value))}
    return names | ({"compile_mode"} if config["compile_mode"] is None else set())
