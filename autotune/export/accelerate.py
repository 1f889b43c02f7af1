"""Export to a configuration file for `accelerate launch`."""

from __future__ import annotations

import shlex
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import TrainingConfig, environ_of
from autotune.export import form
from autotune.knobs.base import Value
from autotune.values.strict_yaml import dump

_PRECISION: dict[Value, str] = {None: "no", "bfloat16": "bf16", "float16": "fp16"}
# Accelerator() reads it; a configuration file has no key for it without DeepSpeed.
_ACCUMULATION = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
# Accelerator() reads it; accelerate launch sets it only for one process, and without it several on
# a CPU would not join.
_USE_CPU = "ACCELERATE_USE_CPU"
_OWN_SHAPES = "accelerate compiles again for each shape; its file has no key for torch's own choice"
_IN_USE = "the command after `use:` has it"
_OWN_THREADS = "accelerate launch chooses the number itself unless OMP_NUM_THREADS is exported"


def to_accelerate(best: BestConfig) -> form.Exported:
    """Return a file for all processes; it cannot carry batch size and loader."""
    config = best.training_config
    mode, refused = config["compile_mode"], form.is_half_on_cpu(best)
    starts_all = _starts_all(best)
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        # MULTI_GPU starts several on a CPU, too: MULTI_CPU asks for mpirun.
        "distributed_type": "MULTI_GPU" if starts_all else "NO",
        "num_processes": best.processes if starts_all else 1,
        "num_machines": 1,
        "machine_rank": 0,
        "use_cpu": best.machine.device == "cpu",
        "debug": False,
        "mixed_precision": _PRECISION[None if refused else config["amp_dtype"]],
    }
    carried = {"compile_mode"} | (set() if refused else {"amp_dtype"})
    carried |= set() if config["compile_dynamic"] is None else {"compile_dynamic"}
    carried |= {form.PROCESSES} if starts_all else set()
    if mode is not None:
        values["dynamo_config"] = {
            "dynamo_backend": "INDUCTOR",
            "dynamo_mode": mode,
            "dynamo_use_fullgraph": False,
            "dynamo_use_dynamic": bool(config["compile_dynamic"]),
        }
    instead = {"num_threads": _OWN_THREADS if config["num_threads"] is None else _IN_USE}
    instead |= _handler(config)
    instead |= {"accumulation_steps": _IN_USE, "compile_dynamic": _OWN_SHAPES}
    instead |= {knob.name: _IN_USE for knob, value in config.items() if knob.environ(value)}
    instead |= {f"flags.{name}": _IN_USE for name in form.carried_flags(best)}
    in_force: dict[str, Value] = {"num_threads": "its own", "compile_dynamic": False}
    dropped = form.left_out(best, carried, in_force, instead)
    return form.Exported(dump(values), dropped, _launch(best))


def _starts_all(best: BestConfig) -> bool:
    """Return True if `accelerate launch` starts several processes that train as measured."""
    return best.processes is not None and best.config.get("sharding") is None


def _launch(best: BestConfig) -> str:
    """Return the command line, with what the file cannot express."""
    config = best.training_config
    count, threads = config["accumulation_steps"], config["num_threads"]
    pairs = [f"{name}={shlex.quote(value)}" for name, value in environ_of(config).items()]
    pairs += [] if count == 1 else [f"{_ACCUMULATION}={count}"]
    several = _starts_all(best)
    pairs += [f"{_USE_CPU}=true"] if several and best.machine.device == "cpu" else []
    words = [*(["env", *pairs] if pairs else []), "accelerate launch --config_file FILE"]
    words += [] if threads is None else [f"--num_cpu_threads_per_process {threads}"]
    return " ".join((*words, "train.py", *map(shlex.quote, form.own_words(best))))


def _handler(config: TrainingConfig) -> dict[str, str]:
    """Return by knob how to set it in Accelerate: all are arguments of one handler."""
    fields = form.handler_fields(config)
    words = ", ".join(f"{name}={code}" for name, code in fields.values())
    whole = f"Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({words})])"
    first = next(iter(fields), None)
    return {
        knob: whole if knob == first else "in the same DistributedDataParallelKwargs"
        for knob in fields
    }
