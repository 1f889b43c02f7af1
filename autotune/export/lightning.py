"""Export to arguments for Lightning's Trainer and for the calls that Lightning leaves to you."""

from __future__ import annotations

from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.export import form
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Value
from autotune.knobs.ranks import COMM_HOOKS, DDP_ARGUMENTS
from autotune.values.strict_yaml import dump

_PRECISION: dict[Value, str] = {None: "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}
_IN_TORCH = ("num_threads", "float32_matmul_precision", "compile_mode")
_FLOAT16_ON_CPU = (
    "Lightning would silently use bfloat16 on a CPU; use torch.autocast in training_step"
)


def to_lightning(best: BestConfig) -> form.Exported:
    """Return a section for each call: Trainer, DataLoader, the optimizer, functions of torch.

    `benchmark` is always written, because Lightning's own choice depends on `deterministic`.
    """
    config = best.training_config
    loader = {n: v for k in ALL_KNOBS for n, v in k.loader_kwargs(config[k.name]).items()}
    optimizer = {n: v for k in ALL_KNOBS for n, v in k.optimizer_kwargs(config[k.name]).items()}
    silent = form.is_half_on_cpu(best)
    sections: dict[str, dict[str, Any]] = {
        "trainer": _trainer(best, _PRECISION[None if silent else config["amp_dtype"]]),
        "dataloader": loader,
        "optimizer": optimizer,
        "torch": {name: config[name] for name in _IN_TORCH if config[name] is not None},
    }
    ranks = {} if best.processes is None else form.ddp_arguments(config)
    if best.processes is not None and not ranks and not config["sharding"]:
        sections["trainer"]["strategy"] = "ddp"
    carried = {k.name for k in ALL_KNOBS if k.loader_kwargs(config[k.name])}
    carried |= {"accumulation_steps", "cudnn_benchmark", "deterministic", "optimizer_impl"}
    carried |= {*_IN_TORCH, *DDP_ARGUMENTS, form.PROCESSES}
    carried |= set() if silent else {"amp_dtype"}
    instead = {"ddp_comm_dtype": _hook(best)}
    instead |= {"amp_dtype": _FLOAT16_ON_CPU} if silent else {}
    dropped = form.left_out(best, carried, instead=instead)
    use = (
        "Trainer(**trainer), DataLoader(dataset, **dataloader), the optimizer(**optimizer), and of "
        "torch set_num_threads, set_float32_matmul_precision, compile(model, mode=compile_mode)"
    )
    if ranks:
        sections["strategy"] = ranks
        use = f"strategy=DDPStrategy(**strategy) for the trainer; {use}"
    return form.Exported(dump({name: s for name, s in sections.items() if s}), dropped, use)


def _trainer(best: BestConfig, precision: str) -> dict[str, Any]:
    """Return the arguments of the Trainer, without those of the exchange between processes."""
    config = best.training_config
    found: dict[str, Any] = {"accelerator": "cpu" if best.machine.device == "cpu" else "auto"}
    found["devices"] = best.processes or 1
    found |= {"precision": precision, "benchmark": config["cudnn_benchmark"]}
    if config["accumulation_steps"] != 1:
        found["accumulate_grad_batches"] = config["accumulation_steps"]
    if config["deterministic"]:
        found["deterministic"] = True
    return found


def _hook(best: BestConfig) -> str:
    """Return how Lightning's strategy exchanges gradients in another format."""
    if best.machine.device == "cpu":
        return "Lightning registers no such hook on a CPU"
    hook = COMM_HOOKS.get(str(best.config.get("ddp_comm_dtype")))
    return f"DDPStrategy(ddp_comm_hook=default_hooks.{hook})"
