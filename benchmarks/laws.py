"""The law of most synthetic tables: rate, memory and quality of a configuration.

It imitates real training. A step takes as long as its slowest stage, and workers load in parallel.
Half precision and compilation speed up computing alone. Memory grows with the batch size.
Knobs that pay seldom have small effects: guesses with a reason each, none of them measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Diagnosed, Loading

GIB = 1 << 30
CORES = 16
REFERENCE_QUALITY = 0.9


@dataclass(frozen=True, slots=True)
class Truth:
    """True values of a configuration, without noise."""

    rate: float
    """Samples per second."""
    memory_gib: float
    """Peak memory in GiB."""
    quality: float = REFERENCE_QUALITY
    """Quality after training; higher is better."""
    crash: str = ""
    """Reason of a crash; empty if the configuration runs."""
    compile_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """Costs of a synthetic model and its dataset, in float32 and eager mode."""

    fixed: float
    """Seconds of a step that do not depend on the batch: launching kernels, the optimizer."""
    each: float
    """Seconds to compute a sample."""
    load: float
    """Seconds for one worker to load a sample."""
    copy: float
    """Seconds to copy a sample to the device from memory that is not pinned."""
    held_gib: float
    """GiB of model, gradients and optimizer."""
    sample_gib: float
    """GiB of a sample's activations."""
    matmul: float = 0.7
    """Share of the computation that half precision speeds up."""
    layout: float = 1.0
    """Factor of channels_last on the computation's time in half precision."""
    critical_batch: int = 512
    """Batch size beyond which larger batches train worse."""
    attention: float = 0.0
    """Share of the computation that scaled_dot_product_attention takes."""


def number(config: TrainingConfig, name: str) -> int:
    """Return a setting as an integer; 0 for null."""
    return int(config[name] or 0)


def step(model: Model, config: TrainingConfig) -> Truth:
    """Return the true values of a configuration by the law."""
    batch, workers = number(config, "batch_size"), number(config, "num_workers")
    compute = _compute_seconds(model, config)
    load = model.load * batch * _host_factor(config)
    copy = model.copy * batch * (0.4 if config["pin_memory"] else 1.0)
    if workers:
        crowd = 1 + 0.03 * max(0, workers - CORES // 2)
        ready = load * crowd / min(workers, CORES) + 0.0004
        # A longer queue hides samples that take longer, and so does not waiting for them.
        is_smooth = number(config, "prefetch_factor") > 2 or not config["in_order"]
        smooth = 1.0 if is_smooth else 1.02
        overlap = 0.15 if config["pin_memory"] else 1.0
        seconds = max(compute + copy * overlap, ready * smooth)
    else:
        seconds = load + copy + compute
    half = config["amp_dtype"] is not None
    graphs = config["compile_mode"] in ("reduce-overhead", "max-autotune")
    # Checkpointing keeps what enters each block alone.
    kept = 0.4 if config["activation_checkpointing"] else 1.0
    memory = model.held_gib + batch * model.sample_gib * (0.6 if half else 1.0) * kept
    memory *= 1.25 if graphs else 0.9 if config["compile_mode"] else 1.0
    over = max(0.0, math.log2(batch / model.critical_batch))
    return Truth(
        rate=batch / seconds,
        memory_gib=memory,
        quality=REFERENCE_QUALITY - 0.03 * over,
        compile_seconds=_compile_seconds(config),
    )


def _compute_seconds(model: Model, config: TrainingConfig) -> float:
    half, mode = config["amp_dtype"] is not None, config["compile_mode"]
    products = model.matmul
    if half:
        products *= 0.42 * (model.layout if config["channels_last"] else 1.0)
    elif config["float32_matmul_precision"] != "highest":
        products *= 0.6
    others = (1 - model.matmul) * (0.75 if half else 1.0) * (_fused_share(config) if mode else 1.0)
    fixed = model.fixed * (1.15 if half else 1.0) * _LAUNCHES.get(str(mode), 1.0)
    fixed *= _OPTIMIZER.get(str(config["optimizer_impl"]), 1.0)
    scaling = 1.03 if config["amp_dtype"] == "float16" else 1.0
    # A step is about three forward passes, of which checkpointing adds one for the blocks.
    scaling *= 1.28 if config["activation_checkpointing"] else 1.0
    kernel = _ATTENTION.get(str(config["sdpa_backend"]), 1.0)
    scaling *= 1 + model.attention * (kernel - 1)
    return (fixed + model.each * number(config, "batch_size") * (products + others)) * scaling


def _fused_share(config: TrainingConfig) -> float:
    """Return the factor of compiling on what is no matrix product."""
    share = 0.55
    # Kernels for any size know less, and nothing is fused across blocks.
    share *= 1.08 if config["compile_dynamic"] else 1.0
    return share * (1.06 if config["compile_scope"] == "blocks" else 1.0)


def _compile_seconds(config: TrainingConfig) -> float:
    seconds = _COMPILE_SECONDS.get(str(config["compile_mode"]), 0.0)
    # Equal blocks share what is compiled; symbolic shapes take longer.
    seconds *= 0.3 if config["compile_scope"] == "blocks" else 1.0
    return seconds * (1.3 if config["compile_dynamic"] else 1.0)


def _host_factor(config: TrainingConfig) -> float:
    """Return the factor of the host's allocator on loading, which allocates for each sample."""
    factor = _ALLOCATOR.get(str(config["cpu_allocator"]), 1.0)
    return factor * (0.99 if config["merge_param_groups"] else 1.0)


def stages(model: Model, config: TrainingConfig) -> Diagnosed:
    """Return the stages that a diagnosis of these settings would find."""
    batch = number(config, "batch_size")
    load = model.load * batch
    double = config.replace(batch_size=2 * batch)
    workers = (2, CORES // 2)
    return Diagnosed(
        batch_size=batch,
        compute_seconds=_compute_seconds(model, config),
        double_compute_seconds=_compute_seconds(model, double),
        transfer_seconds=model.copy * batch * (0.4 if config["pin_memory"] else 1.0),
        loading=(Loading(0, load), *(Loading(w, load / w + 0.0004) for w in workers)),
        optimizer_seconds=0.3 * model.fixed,
    )


# On CUDA, null is foreach.
_OPTIMIZER = {"fused": 0.85, "forloop": 1.3}
# PyTorch's own choice is mostly flash; without a fused kernel all scores are written to memory.
_ATTENTION = {"flash": 1.0, "efficient": 1.1, "cudnn": 0.95, "math": 2.0}
# Memory is given back to the system less often.
_ALLOCATOR = {"jemalloc": 0.97, "tcmalloc": 0.98}
_COMPILE_SECONDS = {
    "default": 12.0,
    "reduce-overhead": 16.0,
    "max-autotune": 60.0,
    "max-autotune-no-cudagraphs": 60.0,
}
_LAUNCHES = {
    "default": 0.7,
    "reduce-overhead": 0.2,
    "max-autotune": 0.18,
    "max-autotune-no-cudagraphs": 0.65,
}
