"""Export to a patch for DeepSpeed's JSON configuration, to be merged into your own."""

from __future__ import annotations

import json
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.export.form import Exported, left_out
from autotune.export.ranks import PROCESSES, hosts_of
from autotune.knobs.base import Value

_DTYPES: dict[Value, str] = {"bfloat16": "bf16", "float16": "fp16"}
# Elements of float32 in a MiB.
_FLOATS = (1 << 20) // 4


def to_deepspeed(best: BestConfig) -> Exported:
    """Return a patch with batch size, mixed precision and the format of the exchange.

    DeepSpeed configures no other knob.

    The precision is `torch_autocast`, as in the trials. `bf16` and `fp16` are switched off, because
    they would train a model with 16-bit weights.
    """
    config = best.training_config
    dtype = config["amp_dtype"]
    patch: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": config["batch_size"],
        "torch_autocast": {"enabled": False}
        if dtype is None
        else {"enabled": True, "dtype": dtype},
        "bf16": {"enabled": False},
        "fp16": {"enabled": False},
    }
    if config["accumulation_steps"] != 1:
        patch["gradient_accumulation_steps"] = config["accumulation_steps"]
    if config["ddp_comm_dtype"]:
        patch["communication_data_type"] = _DTYPES[config["ddp_comm_dtype"]]
    dropped = left_out(
        best,
        {"batch_size", "accumulation_steps", "amp_dtype", "ddp_comm_dtype"},
        instead={
            "compile_mode": "engine.compile(compile_kwargs={'mode': ...})",
            "ddp_bucket_mb": "zero_optimization.reduce_bucket_size has such a size in elements, "
            f"{int(config['ddp_bucket_mb'] or 0) * _FLOATS} of float32, for ZeRO alone",
            "sharding": "zero_optimization.stage=3 shards alike, by code of its own",
            PROCESSES: _launch(best),
        },
    )
    return Exported(json.dumps(patch, indent=2) + "\n", dropped)


def _launch(best: BestConfig) -> str:
    """Return how DeepSpeed's launcher starts the processes."""
    hosts = hosts_of(best)
    if not hosts.are_alike:
        return "deepspeed --hostfile HOSTS train.py, with slots=N of each host as measured"
    places = "" if hosts.count == 1 else f"--hostfile HOSTS --num_nodes {hosts.count} "
    return f"deepspeed {places}--num_gpus {hosts.processes} train.py"
