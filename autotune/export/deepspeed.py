"""Export to a patch for DeepSpeed's JSON configuration, to be merged into your own."""

from __future__ import annotations

import json
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.export.form import Exported, left_out


def to_deepspeed(best: BestConfig) -> Exported:
    """Return a patch with batch size and mixed precision; DeepSpeed configures no other knob.

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
    dropped = left_out(
        best,
        {"batch_size", "accumulation_steps", "amp_dtype"},
        instead={"compile_mode": "engine.compile(compile_kwargs={'mode': ...})"},
    )
    return Exported(json.dumps(patch, indent=2) + "\n", dropped)
