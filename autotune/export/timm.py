"""Export to defaults for timm's train.py, by the internal names of its arguments."""

from __future__ import annotations

from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.export.form import Exported, left_out
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.values.strict_yaml import dump

# train.py sets these on CUDA whatever the file says.
_ON_CUDA: dict[str, Value] = {"float32_matmul_precision": "high", "cudnn_benchmark": True}
_HARD_CODED = "train.py sets it itself; edit the script"


def to_timm(best: BestConfig) -> Exported:
    """Return a file for `train.py -c`, with timm's names only: it ignores unknown ones silently."""
    config = best.training_config
    dtype, mode = config["amp_dtype"], config["compile_mode"]
    values: dict[str, Any] = {
        "batch_size": config["batch_size"],
        "workers": config["num_workers"],
        "pin_mem": config["pin_memory"],
        "amp": dtype is not None,
        "channels_last": config["channels_last"],
        "torchcompile": None if mode is None else "inductor",
        "torchcompile_mode": mode,
    }
    on_cpu = best.machine.device == "cpu"
    if on_cpu:  # else train.py looks for CUDA
        values["device"] = "cpu"
    if dtype is not None:
        values["amp_dtype"] = dtype
    if config["accumulation_steps"] != 1:
        values["grad_accum_steps"] = config["accumulation_steps"]
    if optimizer := KNOBS["optimizer_impl"].optimizer_kwargs(config["optimizer_impl"]):
        values["opt_kwargs"] = dict(optimizer)
    if not config["broadcast_buffers"]:
        values["no_ddp_bb"] = True
    carried = {
        "broadcast_buffers",
        "batch_size",
        "num_workers",
        "pin_memory",
        "amp_dtype",
        "channels_last",
    }
    carried |= {"compile_mode", "optimizer_impl", "accumulation_steps"}
    in_force = {"persistent_workers": True, **({} if on_cpu else _ON_CUDA)}
    instead = dict.fromkeys(in_force, _HARD_CODED)
    dropped = left_out(best, carried, in_force, instead)
    return Exported(dump(values), dropped, "python train.py -c FILE ...")
