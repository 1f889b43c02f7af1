"""Export to fields of transformers' TrainingArguments."""

from __future__ import annotations

from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.export.form import Exported, ddp_arguments, handler_fields, is_half_on_cpu, left_out
from autotune.knobs.ranks import DDP_ARGUMENTS
from autotune.values.strict_yaml import dump

# The optimizer is the user's choice; the default of `optim` is fused AdamW.
_UNFUSED = "optim=adamw_torch if yours is AdamW, which transformers would fuse"


def to_hf(best: BestConfig) -> Exported:
    """Return a file for `HfArgumentParser.parse_yaml_file`."""
    words = _words(best)
    merged = {name: value for fields in words.values() for name, value in fields.items()}
    use = "HfArgumentParser(TrainingArguments).parse_yaml_file(FILE)"
    if "optim" in merged:
        use += "; leave out optim if yours is not AdamW"
    # On the handler that the Trainer makes itself.
    instead = {
        knob: f"trainer.accelerator.ddp_handler.{name} = {code}, before trainer.train()"
        for knob, (name, code) in handler_fields(best.training_config).items()
    }
    if best.training_config["optimizer_impl"] is None:
        instead["optimizer_impl"] = _UNFUSED
    left = left_out(best, words.keys(), {"optimizer_impl": "fused"}, instead)
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
    if best.processes is None or config["sharding"]:
        return {}
    # Else transformers looks for unused parameters in each step.
    words: dict[str, dict[str, Any]] = {"find_unused": {"ddp_find_unused_parameters": False}}
    for argument, value in ddp_arguments(config).items():
        if argument != "gradient_as_bucket_view":
            (knob,) = (name for name, one in DDP_ARGUMENTS.items() if one == argument)
            words[knob] = {f"ddp_{argument}": value}
    return words
