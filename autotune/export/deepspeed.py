"""A patch for DeepSpeed's JSON configuration, to be merged into one's own."""

from __future__ import annotations

import json

from autotune.best import BestConfig
from autotune.export.form import Exported, left_out


def to_deepspeed(best: BestConfig) -> Exported:
    """Batch size and mixed precision; DeepSpeed configures little else of what is tuned.

    Precision is `torch_autocast`, because that is what was measured: `bf16` and `fp16` would train
    a model whose weights themselves are short, and are switched off.
    """
    config = best.training_config
    dtype = config["amp_dtype"]
    patch = {
        "train_micro_batch_size_per_gpu": config["batch_size"],
        "torch_autocast": {"enabled": False}
        if dtype is None
        else {"enabled": True, "dtype": dtype},
        "bf16": {"enabled": False},
        "fp16": {"enabled": False},
    }
    dropped = left_out(
        best,
        {"batch_size", "amp_dtype"},
        instead={"compile_mode": "engine.compile(compile_kwargs={'mode': ...})"},
    )
    return Exported(json.dumps(patch, indent=2) + "\n", dropped)
