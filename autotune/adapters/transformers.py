"""transformers: a Trainer as a model.py, and the callback that applies a best.yaml.

    BASELINE = {"batch_size": 8, "optimizer_impl": "fused"}
    build_model, build_dataset, compute_loss, build_optimizer, collate_fn = from_trainer(
        build_trainer, BASELINE
    )

The Trainer's own loss, optimizer and collator are used. Schedulers and callbacks are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from autotune.adapters.differences import Asked, in_force, tell_differences
from autotune.adapters.parts import (
    Built,
    Parts,
    TrainingStep,
    check_baseline,
    loss_of_step,
    with_options,
)
from autotune.knobs.base import Value

# The field's name, and its older one.
_RECOMPUTES = ("activation_checkpointing", "gradient_checkpointing")


def from_trainer(
    build_trainer: Callable[[], Trainer], baseline: Mapping[str, Value] | None = None
) -> Parts:
    """Return the functions of a model.py.

    `build_dataset` raises ValueError if the TrainingArguments have other settings than the
    baseline, such as another batch size or precision.

    Args:
        build_trainer: builds the Trainer with a new model, which it is called for in each training.
        baseline: BASELINE of the model.py. Default: none, which is a batch size of 32.
    """
    built: Built[Trainer] = Built(_model_of)

    def build_model() -> nn.Module:
        trainer = build_trainer()
        built.add(trainer)
        model = _model_of(trainer)
        return TrainingStep(model, lambda batch: trainer.compute_loss(model, batch))

    @cache
    def loader() -> DataLoader[Any]:
        trainer = build_trainer()
        check_baseline("TrainingArguments", _settings_of(trainer.args), baseline)
        found: DataLoader[Any] = trainer.get_train_dataloader()
        return found

    def build_dataset() -> Dataset[Any]:
        return loader().dataset

    def build_optimizer(parameters: Iterable[Any], **options: Any) -> Optimizer:
        optimizer: Optimizer = built.owner_of(parameters).create_optimizer()
        return with_options(optimizer, options)

    def collate_fn(samples: list[Any]) -> Any:
        return loader().collate_fn(samples)

    return Parts(build_model, build_dataset, loss_of_step, build_optimizer, collate_fn)


def _model_of(trainer: Trainer) -> nn.Module:
    model = trainer.model
    assert isinstance(model, nn.Module)
    return model


def _settings_of(args: TrainingArguments) -> dict[str, Value]:
    """Return the settings that a Trainer would train with, by the name of their knob."""
    dtype = "bfloat16" if args.bf16 else "float16" if args.fp16 else None
    optim = str(getattr(args.optim, "value", args.optim))
    found: dict[str, Value] = {
        "batch_size": args.per_device_train_batch_size,
        "num_workers": args.dataloader_num_workers,
        "accumulation_steps": args.gradient_accumulation_steps,
        "amp_dtype": dtype,
        "compile_mode": (args.torch_compile_mode or "default") if args.torch_compile else None,
        "optimizer_impl": "fused" if "fused" in optim else None,
        "activation_checkpointing": any(getattr(args, name, False) for name in _RECOMPUTES),
    }
    if args.device.type == "cuda":  # pinned memory is nothing on a CPU
        found["pin_memory"] = args.dataloader_pin_memory
    if args.dataloader_num_workers:
        found["persistent_workers"] = args.dataloader_persistent_workers
        found["prefetch_factor"] = args.dataloader_prefetch_factor or 2  # torch's default
    if args.tf32 is not None:
        found["float32_matmul_precision"] = "high" if args.tf32 else "highest"
    return found


class ApplyBest(TrainerCallback):
    """Apply what a best.yaml says of the process, and warn of other TrainingArguments.

    The arguments are yours to give: `TrainingArguments(**{**best.arguments("hf"), ...})`.
    """

    def __init__(self, path: str | Path, *, strict: bool = False) -> None:
        from autotune import load

        self.best = load(path, strict=strict)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **training: Any,
    ) -> None:
        """Set threads, cuDNN and matmul precision, and warn of what the Trainer has otherwise.

        Raises:
            MismatchError: in place of the warning, if `strict` is set and one has another value.
        """
        self.best.apply_to_process()
        found = self.best.arguments_and_left("hf")
        # The optimizer itself tells whether it is fused; `optim` need not be AdamW.
        said = {name: value for name, value in found.values.items() if name != "optim"}
        live = in_force(training["model"], training["optimizer"].param_groups)
        if "torch_compile" in said:
            del live["compile_mode"]  # Accelerate keeps what it compiles to itself
        has = {name: getattr(args, name) for name in said}
        tell_differences(self.best, "TrainingArguments", Asked(said, found.left), has, live)
