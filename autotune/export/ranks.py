"""What forms say of several processes: how to start them, and their words for DDP's settings."""

from __future__ import annotations

from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Value

PROCESSES = "processes"
"""Name under which a form says that it cannot start the processes."""
HOOKS: dict[Value, str] = {"bfloat16": "bf16_compress_hook", "float16": "fp16_compress_hook"}
"""Name of torch's compression hook for each number format."""


def by_torchrun(best: BestConfig) -> str:
    """Return how to start the processes where a form has no word for them."""
    return f"start the training by torchrun --nproc-per-node {best.processes}"


DDP_ARGUMENTS = {
    "ddp_bucket_mb": "bucket_cap_mb",
    "gradient_as_bucket_view": "gradient_as_bucket_view",
    "static_graph": "static_graph",
    # The older name, which every version of torch and these tools take.
    "broadcast_buffers": "broadcast_buffers",
}
"""Knob to the argument of DistributedDataParallel that has it."""


def ddp_arguments(config: TrainingConfig) -> dict[str, Any]:
    """Return the arguments of DistributedDataParallel that are not its defaults."""
    return {
        argument: config[knob]
        for knob, argument in DDP_ARGUMENTS.items()
        if config[knob] != KNOBS[knob].default
    }


def for_accelerator(config: TrainingConfig) -> dict[str, str]:
    """Return knob to what Accelerate calls it; its configuration file has no word for any."""
    words = {knob: f"{name}={config[knob]!r}" for knob, name in DDP_ARGUMENTS.items()}
    hook = "BF16" if config["ddp_comm_dtype"] == "bfloat16" else "FP16"
    words["ddp_comm_dtype"] = f"comm_hook=DDPCommunicationHookType.{hook}"
    return {
        knob: f"Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({word})])"
        for knob, word in words.items()
    }
