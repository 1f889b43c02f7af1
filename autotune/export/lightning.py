"""Export to arguments for Lightning's Trainer and for the calls that Lightning leaves to you."""

from __future__ import annotations

from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.export.form import Exported, is_half_on_cpu, left_out
from autotune.export.ranks import DDP_ARGUMENTS, HOOKS, PROCESSES, ddp_arguments
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Value
from autotune.values.strict_yaml import dump

_PRECISION: dict[Value, str] = {None: "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}
_IN_TORCH = ("num_threads", "float32_matmul_precision", "compile_mode")
_FLOAT16_ON_CPU = (
    "Lightning would take bfloat16 on a CPU without a word; use torch.autocast in training_step"
)

_SHARDED = "ModelParallelStrategy, with fully_shard in configure_model"


def to_lightning(best: BestConfig) -> Exported:
    """Return a section for each call: Trainer, DataLoader, the optimizer, functions of torch.

    `benchmark` is always written, because Lightning's own choice depends on `deterministic`.
    """
    config = best.training_config
    loader = {n: v for k in ALL_KNOBS for n, v in k.loader_kwargs(config[k.name]).items()}
    optimizer = {n: v for k in ALL_KNOBS for n, v in k.optimizer_kwargs(config[k.name]).items()}
    on_cpu = best.machine.device == "cpu"
    silent = is_half_on_cpu(best)
    precision = None if silent else config["amp_dtype"]
    sections: dict[str, dict[str, Any]] = {
        "trainer": {
            "accelerator": "cpu" if on_cpu else "auto",
            "devices": best.processes or 1,
            "precision": _PRECISION[precision],
            "benchmark": config["cudnn_benchmark"],
        },
        "dataloader": loader,
        "optimizer": optimizer,
        "torch": {name: config[name] for name in _IN_TORCH if config[name] is not None},
    }
    ranks = {} if best.processes is None else ddp_arguments(config)
    if best.processes is not None and not ranks:
        sections["trainer"]["strategy"] = "ddp"
    if config["accumulation_steps"] != 1:
        sections["trainer"]["accumulate_grad_batches"] = config["accumulation_steps"]
    if config["deterministic"]:
        sections["trainer"]["deterministic"] = True
    carried = {k.name for k in ALL_KNOBS if k.loader_kwargs(config[k.name])}
    carried |= {"accumulation_steps", "cudnn_benchmark", "deterministic", "optimizer_impl"}
    carried |= {*_IN_TORCH, *DDP_ARGUMENTS, PROCESSES}
    carried |= set() if silent else {"amp_dtype"}
    instead = {"ddp_comm_dtype": _hook(best), "sharding": _SHARDED}
    instead |= {"amp_dtype": _FLOAT16_ON_CPU} if silent else {}
    dropped = left_out(best, carried, instead=instead)
    use = (
        "Trainer(**trainer), DataLoader(dataset, **dataloader), the optimizer(**optimizer), and of "
        "torch set_num_threads, set_float32_matmul_precision, compile(model, mode=compile_mode)"
    )
    if ranks:
        sections["strategy"] = ranks
        use = f"strategy=DDPStrategy(**strategy) for the trainer; {use}"
    return Exported(dump({name: s for name, s in sections.items() if s}), dropped, use)


def _hook(best: BestConfig) -> str:
    """Return how Lightning's strategy exchanges gradients in another format."""
    if best.machine.device == "cpu":
        return "Lightning registers no such hook on a CPU"
    return (
        f"DDPStrategy(ddp_comm_hook=default_hooks.{HOOKS.get(best.config.get('ddp_comm_dtype'))})"
    )
