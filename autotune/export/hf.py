"""Export to fields of transformers' TrainingArguments."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import TrainingConfig
from autotune.export.form import Exported, ddp_arguments, handler_fields, is_half_on_cpu, left_out
from autotune.knobs.ranks import DDP_ARGUMENTS
from autotune.values.strict_yaml import dump

# Which optimizer that is, is the user's; the default of `optim` is AdamW, fused.
_UNFUSED = "optim=adamw_torch where yours is AdamW, which transformers would fuse"


def to_hf(best: BestConfig) -> Exported:
    """Return a file for `HfArgumentParser.parse_yaml_file`, with fields of the installed version.

    Without transformers, all fields are written.
    """
    words, known = _words(best), installed_fields()
    absent = {
        knob: [name for name in fields if known is not None and name not in known]
        for knob, fields in words.items()
    }
    carried = [knob for knob, names in absent.items() if not names]
    lacking = {
        knob: f"the installed transformers has no {', '.join(names)}"
        for knob, names in absent.items()
        if names
    }
    merged = {name: value for knob in carried for name, value in words[knob].items()}
    use = "HfArgumentParser(TrainingArguments).parse_yaml_file(FILE)"
    if "optim" in merged:
        use += "; leave out optim where yours is not AdamW"
    instead = _on_the_handler(best) | lacking
    if best.training_config["optimizer_impl"] is None:
        instead["optimizer_impl"] = _UNFUSED
    left = left_out(best, carried, {"optimizer_impl": "fused"}, instead)
    return Exported(dump(merged), left, use)


def _words(best: BestConfig) -> dict[str, dict[str, Any]]:
    """Return knob (or device) to fields, with all values explicit."""
    config = best.training_config
    dtype, mode = config["amp_dtype"], config["compile_mode"]
    on_cpu = best.machine.device == "cpu"
    words: dict[str, dict[str, Any]] = {
        "device": {"use_cpu": on_cpu},  # without it transformers refuses bf16 on a CPU
        "batch_size": {"per_device_train_batch_size": config["batch_size"]},
        "num_workers": {"dataloader_num_workers": config["num_workers"]},
        "persistent_workers": {"dataloader_persistent_workers": config["persistent_workers"]},
        "pin_memory": {"dataloader_pin_memory": config["pin_memory"]},
        "compile_mode": {"torch_compile": mode is not None},
    }
    if config["optimizer_impl"] == "fused":
        words["optimizer_impl"] = {"optim": "adamw_torch_fused"}
    count = config["accumulation_steps"]
    words["accumulation_steps"] = {} if count == 1 else {"gradient_accumulation_steps": count}
    if not is_half_on_cpu(best):
        words["amp_dtype"] = {"bf16": dtype == "bfloat16", "fp16": dtype == "float16"}
    if config["num_workers"]:  # else transformers refuses it
        words["prefetch_factor"] = {"dataloader_prefetch_factor": config["prefetch_factor"]}
    tf32 = config["float32_matmul_precision"] == "high" and not on_cpu
    if tf32 or config["float32_matmul_precision"] == "highest":
        words["float32_matmul_precision"] = {"tf32": True} if tf32 else {}
    words |= _of_ranks(best)
    if mode is not None:
        words["compile_mode"] |= {
            "torch_compile_backend": "inductor",
            "torch_compile_mode": mode,
            "tf32": tf32,  # else transformers switches it on by itself when it compiles
        }
    return words


def _of_ranks(best: BestConfig) -> dict[str, dict[str, Any]]:
    """Return knob to fields, for several processes."""
    config = best.training_config
    if best.processes is None:
        return {}
    if config["sharding"]:
        return {} if best.machine.device == "cpu" else _sharded(config)
    # Else transformers looks for unused parameters in each step.
    words: dict[str, dict[str, Any]] = {"find_unused": {"ddp_find_unused_parameters": False}}
    for argument, value in ddp_arguments(config).items():
        if argument != "gradient_as_bucket_view":
            (knob,) = (name for name, one in DDP_ARGUMENTS.items() if one == argument)
            words[knob] = {f"ddp_{argument}": value}
    return words


def _sharded(config: TrainingConfig) -> dict[str, dict[str, Any]]:
    """Return knob to fields for a sharded model, which transformers has on GPUs alone."""
    plan = {"version": 2, "reshard_after_forward": config["reshard_after_forward"]}
    return {
        "sharding": {"fsdp": True, "fsdp_config": plan},
        "reshard_after_forward": {"fsdp_config": plan},
    }


def _on_the_handler(best: BestConfig) -> dict[str, str]:
    """Return knob to the line that sets it on the handler that the Trainer makes itself."""
    fields = handler_fields(best.training_config)
    return {
        knob: f"trainer.accelerator.ddp_handler.{name} = {code}, before trainer.train()"
        for knob, (name, code) in fields.items()
    }


def installed_fields() -> frozenset[str] | None:
    """Return the fields of TrainingArguments in the installed transformers; None without it.

    They are read from its source, because importing it would import torch.
    """
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("training_args.py")
    return _fields_in(path) if path.is_file() else None


@cache
def _fields_in(path: Path) -> frozenset[str]:
    classes = ast.parse(path.read_text(encoding="utf-8")).body
    return frozenset(
        field.target.id
        for node in classes
        if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments"
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    )
