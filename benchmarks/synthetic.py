"""Synthetic tables for benchmarks/search.py: machines and models with a known truth.

A `SyntheticWorkload` defines a table by a search space and a law. The law gives the rate, memory
and quality of each configuration, or its failure. `world_tables` adds a small random deviation to
each rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from benchmarks.laws import Model, Truth, number, step

Settings = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class SyntheticWorkload:
    """Definition of a synthetic table: a search space, its baseline, and the law."""

    name: str
    space: Mapping[str, tuple[Value, ...]]
    baseline: Settings
    law: Callable[[TrainingConfig], Truth]
    model: Model | None = None
    """Costs of the stages of training, for the diagnosis; None if there is no diagnosis."""
    has_blocks: bool = False
    """True if the model repeats blocks with attention, which can be recomputed."""


_VISION = Model(0.012, 0.0011, 0.004, 0.00012, 2.0, 0.16, 0.75, 0.75, 256)
_LANGUAGE = Model(0.03, 0.021, 0.0004, 0.00001, 18.0, 1.4, 0.85, 1.0, 32)
_TABULAR = Model(0.0016, 0.0000011, 0.0000045, 0.0000004, 0.4, 0.0002, 0.3, 1.0, 4096)
_HALF: tuple[Value, ...] = (None, "bfloat16", "float16")
_OFF_ON: tuple[Value, ...] = (False, True)
_UNFUSED_FUSED: tuple[Value, ...] = (None, "fused")
_IMAGE_SPACE: Mapping[str, tuple[Value, ...]] = {
    "batch_size": (16, 32, 64, 128, 256, 512),
    "num_workers": (0, 1, 2, 4, 8, 16),
    "prefetch_factor": (2, 4),
    "pin_memory": _OFF_ON,
    "amp_dtype": _HALF,
    "channels_last": _OFF_ON,
    "compile_mode": (None, "default", "reduce-overhead"),
}


def vision_loader() -> SyntheticWorkload:
    """Define a table in which decoding is the bottleneck until enough workers; then the GPU is."""
    return SyntheticWorkload(
        "vision_loader", _IMAGE_SPACE, {"batch_size": 32}, lambda c: step(_VISION, c), _VISION
    )


def language_compute() -> SyntheticWorkload:
    """Define a table bound by computing; memory ends before larger batches stop gaining."""
    space = {
        "batch_size": (1, 2, 4, 8, 16, 32, 64),
        "num_workers": (0, 2, 4),
        "pin_memory": _OFF_ON,
        "amp_dtype": _HALF,
        "float32_matmul_precision": ("highest", "high"),
        "compile_mode": (None, "default", "reduce-overhead", "max-autotune"),
        "optimizer_impl": _UNFUSED_FUSED,
    }
    return SyntheticWorkload(
        "language_compute", space, {"batch_size": 4}, lambda c: step(_LANGUAGE, c), _LANGUAGE
    )


def tabular() -> SyntheticWorkload:
    """Define a table of short steps, mostly kernel launches, in which workers cost time."""
    space = {
        "batch_size": (64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "num_workers": (0, 1, 2, 4),
        "prefetch_factor": (2, 4),
        "pin_memory": _OFF_ON,
        "compile_mode": (None, "default", "reduce-overhead"),
        "optimizer_impl": _UNFUSED_FUSED,
        "amp_dtype": (None, "bfloat16"),
    }
    return SyntheticWorkload(
        "tabular", space, {"batch_size": 128}, lambda c: step(_TABULAR, c), _TABULAR
    )


def oom_cliff() -> SyntheticWorkload:
    """Define a table whose best configuration is one step from running out of memory."""
    model = replace(_VISION, load=0.0008, fixed=0.06, sample_gib=0.55, critical_batch=1024)
    space = {
        "batch_size": (16, 32, 64, 96, 128, 160, 192, 256),
        "num_workers": (0, 2, 4, 8),
        "pin_memory": _OFF_ON,
        "amp_dtype": _HALF,
        "channels_last": _OFF_ON,
        "compile_mode": (None, "default", "reduce-overhead"),
        "optimizer_impl": _UNFUSED_FUSED,
    }
    return SyntheticWorkload(
        "oom_cliff", space, {"batch_size": 32, "num_workers": 2}, lambda c: step(model, c), model
    )


def crashes() -> SyntheticWorkload:
    """Define a table in which a fifth crashes: CUDA graphs at large batches, compiled float16."""
    model = replace(_VISION, load=0.002)

    def law(config: TrainingConfig) -> Truth:
        truth = step(model, config)
        graphs = config["compile_mode"] == "reduce-overhead" and number(config, "batch_size") > 128
        half = config["compile_mode"] is not None and config["amp_dtype"] == "float16"
        return replace(truth, crash="killed by SIGSEGV" if graphs or half else "")

    space = dict(vision_loader().space)
    return SyntheticWorkload("crashes", space, {"batch_size": 64, "num_workers": 4}, law, model)


def deceptive_pair() -> SyntheticWorkload:
    """Define a table in which channels_last and bfloat16 lose alone and gain 60 % together."""

    def law(config: TrainingConfig) -> Truth:
        gains = {
            "num_workers": {4: 0.0}.get(number(config, "num_workers"), -0.1),
            "compile_mode": -0.08 if config["compile_mode"] else 0.0,
            "pin_memory": 0.0 if config["pin_memory"] else -0.05,
            "optimizer_impl": 0.0 if config["optimizer_impl"] == "fused" else -0.04,
            "float16": -0.3 if config["amp_dtype"] == "float16" else 0.0,
        }
        half, last = config["amp_dtype"] == "bfloat16", bool(config["channels_last"])
        together = 0.47 if half and last else -0.12 if half or last else 0.0
        batch = -0.06 * abs(math.log2(number(config, "batch_size") / 64))
        rate = 1000 * math.exp(sum(gains.values()) + together + batch)
        return Truth(rate, 2 + 0.1 * number(config, "batch_size"))

    space = {
        "batch_size": (16, 32, 64, 128, 256, 512),
        "num_workers": (0, 1, 2, 4, 8, 16),
        "pin_memory": _OFF_ON,
        "amp_dtype": _HALF,
        "channels_last": _OFF_ON,
        "compile_mode": (None, "default", "reduce-overhead"),
        "optimizer_impl": _UNFUSED_FUSED,
    }
    own = {"batch_size": 64, "num_workers": 4, "pin_memory": True, "optimizer_impl": "fused"}
    return SyntheticWorkload("deceptive_pair", space, own, law)


def deceptive_graphs() -> SyntheticWorkload:
    """Define a table in which CUDA graphs gain half, but fit only at a quarter of the batch."""

    def law(config: TrainingConfig) -> Truth:
        batch, graphs = number(config, "batch_size"), config["compile_mode"] == "reduce-overhead"
        workers = {8: 0.0}.get(number(config, "num_workers"), -0.15)
        gains = -0.08 if config["compile_mode"] == "default" else 0.45 if graphs else 0.0
        gains += 0.0 if config["amp_dtype"] == "bfloat16" else -0.25
        gains += -0.05 if config["channels_last"] else 0.0
        gains += 0.0 if config["pin_memory"] else -0.05
        rate = 1000 * math.exp(gains + workers - 0.07 * abs(math.log2(batch / 256)))
        return Truth(rate, (10 + 0.2 * batch) * (2.0 if graphs else 1.0))

    own = {"batch_size": 256, "num_workers": 8, "amp_dtype": "bfloat16", "pin_memory": True}
    return SyntheticWorkload("deceptive_graphs", _IMAGE_SPACE, own, law)


def speech() -> SyntheticWorkload:
    """Define a table with slow loading and slow computing, which take about as long."""
    model = Model(0.02, 0.006, 0.011, 0.0003, 5.0, 0.9, 0.6, 1.0, 128)
    space = {
        "batch_size": (4, 8, 16, 32, 64, 128),
        "num_workers": (0, 1, 2, 4, 8, 12, 16),
        "prefetch_factor": (2, 4),
        "pin_memory": _OFF_ON,
        "amp_dtype": _HALF,
        "compile_mode": (None, "default"),
        "optimizer_impl": _UNFUSED_FUSED,
        "float32_matmul_precision": ("highest", "high"),
    }
    return SyntheticWorkload(
        "speech", space, {"batch_size": 8, "num_workers": 2}, lambda c: step(model, c), model
    )


def recommender() -> SyntheticWorkload:
    """Define a table bound by copying, in which large batches crash some kernels."""
    model = Model(0.003, 4e-6, 9e-6, 1.2e-5, 20.0, 0.0008, 0.4, 1.0, 16384)

    def law(config: TrainingConfig) -> Truth:
        truth = step(model, config)
        dead = config["compile_mode"] == "max-autotune" and number(config, "batch_size") > 8192
        return replace(truth, crash="illegal memory access" if dead else "")

    space = {
        "batch_size": (512, 1024, 2048, 4096, 8192, 16384, 32768),
        "num_workers": (0, 1, 2, 4, 8),
        "prefetch_factor": (2, 4),
        "pin_memory": _OFF_ON,
        "amp_dtype": (None, "bfloat16"),
        "compile_mode": (None, "default", "max-autotune"),
        "optimizer_impl": _UNFUSED_FUSED,
    }
    return SyntheticWorkload("recommender", space, {"batch_size": 1024}, law, model)


def segmentation() -> SyntheticWorkload:
    """Define a held-out table in which bfloat16 trains worse and memory is always short."""
    model = Model(0.025, 0.009, 0.006, 0.0005, 6.0, 3.1, 0.8, 0.7, 16)

    def law(config: TrainingConfig) -> Truth:
        truth = step(model, config)
        worse = 0.03 if config["amp_dtype"] == "bfloat16" else 0.0
        chosen = 1.06 if config["cudnn_benchmark"] else 1.0
        return replace(truth, rate=truth.rate * chosen, quality=truth.quality - worse)

    space = {
        "batch_size": (2, 4, 8, 12, 16, 24, 32),
        "num_workers": (0, 2, 4, 8, 12),
        "prefetch_factor": (2, 4),
        "pin_memory": _OFF_ON,
        "amp_dtype": _HALF,
        "channels_last": _OFF_ON,
        "cudnn_benchmark": _OFF_ON,
        "compile_mode": (None, "default"),
    }
    return SyntheticWorkload("segmentation", space, {"batch_size": 4, "num_workers": 2}, law, model)


def fine_tuning() -> SyntheticWorkload:
    """Define a held-out table with a hand-tuned baseline, where compiling gains most."""
    model = Model(0.05, 0.03, 0.001, 0.00002, 30.0, 2.2, 0.85, 1.0, 16)
    space = {
        "batch_size": (1, 2, 4, 8, 12, 16, 24),
        "num_workers": (0, 2, 4),
        "pin_memory": _OFF_ON,
        "amp_dtype": _HALF,
        "float32_matmul_precision": ("highest", "high"),
        "compile_mode": (None, "default", "reduce-overhead", "max-autotune"),
        "optimizer_impl": _UNFUSED_FUSED,
    }
    own = {"batch_size": 8, "num_workers": 2, "pin_memory": True, "amp_dtype": "bfloat16"}
    return SyntheticWorkload("fine_tuning", space, own, lambda c: step(model, c), model)


def host_side() -> SyntheticWorkload:
    """Define a table whose loader needs many workers, with the newer knobs of the host."""
    model = replace(_VISION, each=0.0006)
    space = {
        "batch_size": (32, 64, 128, 256),
        "num_workers": (0, 4, 8, 16),
        "in_order": (True, False),
        "pin_memory": _OFF_ON,
        "amp_dtype": (None, "bfloat16"),
        "optimizer_impl": _UNFUSED_FUSED,
        "cpu_allocator": (None, "jemalloc"),
        "merge_param_groups": _OFF_ON,
    }
    return SyntheticWorkload(
        "host_side", space, {"batch_size": 32}, lambda c: step(model, c), model
    )


def deep_blocks() -> SyntheticWorkload:
    """Define a table of a deep transformer, with the newer knobs of the model."""
    model = replace(_LANGUAGE, attention=0.2)
    space = {
        "batch_size": (2, 4, 8, 16, 32),
        "amp_dtype": _HALF,
        "compile_mode": (None, "default", "reduce-overhead"),
        "compile_dynamic": (None, True),
        "compile_scope": ("whole", "blocks"),
        "optimizer_impl": (None, "foreach", "fused"),
        "sdpa_backend": (None, "flash", "cudnn", "math"),
        "activation_checkpointing": _OFF_ON,
    }
    own = {"batch_size": 4, "num_workers": 2}
    return SyntheticWorkload("deep_blocks", space, own, lambda c: step(model, c), model, True)


def short_of_memory() -> SyntheticWorkload:
    """Define a table in which only recomputed activations permit batches that keep the GPU busy."""
    model = Model(0.25, 0.004, 0.0004, 0.00001, 20.0, 6.0, 0.8, 1.0, 64, 0.2)
    space = {
        "batch_size": (2, 4, 8, 16, 32, 64),
        "num_workers": (0, 2),
        "amp_dtype": (None, "bfloat16"),
        "compile_mode": (None, "default"),
        "compile_scope": ("whole", "blocks"),
        "optimizer_impl": _UNFUSED_FUSED,
        "sdpa_backend": (None, "cudnn"),
        "activation_checkpointing": _OFF_ON,
    }
    return SyntheticWorkload(
        "short_of_memory", space, {"batch_size": 4}, lambda c: step(model, c), model, True
    )


TUNED_ON = (vision_loader, language_compute, tabular, oom_cliff, crashes, speech, recommender)
"""Tables on which decisions about the search were made."""
DECEPTIVE = (deceptive_pair, deceptive_graphs)
"""Tables whose best configuration is a combination in which a part alone loses."""
NEWER_KNOBS = (host_side, deep_blocks, short_of_memory)
"""Tables of the newer knobs. What fits into memory was decided on the last one, nothing else."""
HELD_OUT = (segmentation, fine_tuning)
"""Held-out tables, on which nothing was decided."""
