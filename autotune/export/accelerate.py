"""Export to a configuration file for `accelerate launch`."""

from __future__ import annotations

import shlex
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.export.form import (
    Exported,
    carried_flags,
    is_half_on_cpu,
    left_out,
    own_words,
)
from autotune.export.ranks import PROCESSES, for_accelerator
from autotune.knobs.base import Value
from autotune.values.strict_yaml import dump

_PRECISION: dict[Value, str] = {None: "no", "bfloat16": "bf16", "float16": "fp16"}
# Accelerator() reads it; a configuration file has no word for it without DeepSpeed.
_ACCUMULATION = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
_ON_CPU = "accelerate launch starts several on a CPU by mpirun alone; start them by torchrun"
_OWN_THREADS = "accelerate launch chooses the number itself unless OMP_NUM_THREADS is exported"


def to_accelerate(best: BestConfig) -> Exported:
    """Return a file for the processes of this machine; it cannot carry batch size and loader."""
    config = best.training_config
    threads, mode = config["num_threads"], config["compile_mode"]
    refused = is_half_on_cpu(best)
    on_gpus = best.processes is not None and best.machine.device != "cpu"
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if on_gpus else "NO",
        "num_processes": best.processes if on_gpus else 1,
        "num_machines": 1,
        "machine_rank": 0,
        "use_cpu": best.machine.device == "cpu",
        "debug": False,
        "mixed_precision": _PRECISION[None if refused else config["amp_dtype"]],
    }
    if mode is not None:
        values["dynamo_config"] = {
            "dynamo_backend": "INDUCTOR",
            "dynamo_mode": mode,
            "dynamo_use_fullgraph": False,
            # Accelerate has no word for torch's own choice.
            "dynamo_use_dynamic": bool(config["compile_dynamic"]),
        }
    flag = "" if threads is None else f" --num_cpu_threads_per_process {threads}"
    count = config["accumulation_steps"]
    variables = config.of_kind("env")
    pairs = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
    pairs += [] if count == 1 else [f"{_ACCUMULATION}={count}"]
    words = [*(["env", *pairs] if pairs else []), f"accelerate launch --config_file FILE{flag}"]
    launch = " ".join((*words, "train.py", *map(shlex.quote, own_words(best))))
    carried = {"compile_mode", "compile_dynamic"} | (set() if refused else {"amp_dtype"})
    carried |= {PROCESSES} if on_gpus else set()
    instead = {"num_threads": _OWN_THREADS if threads is None else launch, PROCESSES: _ON_CPU}
    instead |= for_accelerator(config)
    instead |= {"accumulation_steps": launch}
    instead |= {f"env.{name}": launch for name in variables}
    instead |= {f"flags.{name}": launch for name in carried_flags(best)}
    dropped = left_out(best, carried, {"num_threads": "its own"}, instead)
    return Exported(dump(values), dropped, launch)
