"""Answers to export: every knob of a GPU, those of several GPUs, and a plain CPU."""

from autotune.configuration.best_config import BestConfig
from autotune.configuration.evidence import LearningRate
from autotune.configuration.training_config import TrainingConfig
from factories import best_config

_BASELINE = TrainingConfig.of({"batch_size": 32, "num_threads": 2})
_GPU = _BASELINE.replace(
    batch_size=64,
    accumulation_steps=2,
    num_workers=4,
    prefetch_factor=4,
    persistent_workers=True,
    pin_memory=True,
    in_order=False,
    amp_dtype="bfloat16",
    float32_matmul_precision="high",
    compile_mode="max-autotune",
    channels_last=True,
    cudnn_benchmark=True,
    deterministic=True,
    fill_uninitialized_memory=False,
    optimizer_impl="fused",
    gc="frozen",
    merge_param_groups=True,
    compile_dynamic=True,
    compile_scope="blocks",
    activation_memory_budget=0.5,
    sdpa_backend="flash",
    activation_checkpointing=True,
    num_threads=8,
    cpu_allocator="jemalloc",
)


def on_gpu() -> BestConfig:
    """Every setting is another than PyTorch's own, and the learning rate is scaled."""
    best = best_config(_GPU, _BASELINE)
    machine = best.machine.model_copy(update={"device": "Test GPU", "driver": "580.82.07"})
    rate = LearningRate(rule="sqrt", factor=1.5)
    return best.model_copy(update={"machine": machine, "lr_scaling": rate})


def on_cpu(**settings: bool | int | str | None) -> BestConfig:
    """The batch size and the threads alone are set, and what a test sets besides."""
    return best_config(_BASELINE.replace(**settings), _BASELINE)


def on_four_gpus() -> BestConfig:
    """Four processes, with every setting of DistributedDataParallel."""
    best = on_cpu(ddp_bucket_mb=50, gradient_as_bucket_view=True, ddp_comm_dtype="bfloat16")
    machine = best.machine.model_copy(update={"device": "Test GPU", "driver": "580.82.07"})
    return best.model_copy(update={"machine": machine, "processes": 4})


ANSWERS = {
    "gpu": on_gpu,
    "cpu": on_cpu,
    "four_gpus": on_four_gpus,
}
