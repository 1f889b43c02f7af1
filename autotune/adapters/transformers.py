"""transformers: a Trainer as a model.py, and the callback that applies a best.yaml.

    build_model, build_dataset, compute_loss, build_optimizer, collate_fn = from_trainer(
        build_trainer
    )

The Trainer's own loss, optimizer and collator are used. Schedulers and callbacks are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from autotune.adapters.differences import warn_of
from autotune.adapters.parts import Parts, TrainingStep, loss_of_step, with_options


def from_trainer(build_trainer: Callable[[], Trainer]) -> Parts:
    """Return the functions of a model.py.

    Args:
        build_trainer: builds the Trainer with a new model, which it is called for in each training.
    """
    built: list[Trainer] = []

    def build_model() -> nn.Module:
        trainer = build_trainer()
        built[:] = [trainer]
        model = trainer.model
        assert isinstance(model, nn.Module)
        return TrainingStep(model, lambda batch: trainer.compute_loss(model, batch))

    @cache
    def loader() -> DataLoader[Any]:
        found: DataLoader[Any] = build_trainer().get_train_dataloader()
        return found

    def build_dataset() -> Dataset[Any]:
        return loader().dataset

    def build_optimizer(parameters: Iterable[Any], **options: Any) -> Optimizer:  # noqa: ARG001
        optimizer: Optimizer = built[0].create_optimizer()
        return with_options(optimizer, options)

    def collate_fn(samples: list[Any]) -> Any:
        return loader().collate_fn(samples)

    return Parts(build_model, build_dataset, loss_of_step, build_optimizer, collate_fn)


class ApplyBest(TrainerCallback):
    """Apply what a best.yaml says of the process, and warn of other TrainingArguments.

    The arguments are yours to give: `TrainingArguments(**best.arguments("hf"), ...)`.
    """

    def __init__(self, path: str | Path, *, strict: bool = False) -> None:
        from autotune import load

        self.best = load(path, strict=strict)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Set threads, cuDNN and matmul precision, and warn of what the arguments say otherwise.

        Raises:
            MismatchError: in place of the warning, if `strict` is set.
        """
        self.best.apply_to_process()
        said = self.best.arguments("hf")
        warn_of(self.best, "TrainingArguments", {name: getattr(args, name) for name in said}, said)
