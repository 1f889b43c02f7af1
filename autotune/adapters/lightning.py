"""Lightning: a module and its data as a model.py, and the callback that applies a best.yaml.

    build_model, build_dataset, compute_loss, build_optimizer, collate_fn = from_lightning(
        MyModule, MyDataModule
    )

`training_step`, `configure_optimizers` and `train_dataloader` are used. Hooks that move or change a
batch, schedulers and callbacks are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from autotune.adapters.differences import loader_settings, warn_of
from autotune.adapters.parts import Parts, TrainingStep, loss_of_step, with_options


def from_lightning(
    module: Callable[[], LightningModule],
    data: Callable[[], LightningDataModule | DataLoader[Any]],
) -> Parts:
    """Return the functions of a model.py.

    Args:
        module: builds the module, such as its class. It is called anew for each training.
        data: builds the data module, or the DataLoader of the training.
    """
    built: list[LightningModule] = []

    def build_model() -> nn.Module:
        trained = module()
        if not trained.automatic_optimization:
            raise ValueError(
                f"{type(trained).__name__} sets automatic_optimization = False: its training_step "
                "steps the optimizer itself. Search the script that trains it instead."
            )
        built[:] = [trained]
        return TrainingStep(trained, lambda batch: trained.training_step(batch, 0))

    @cache
    def loader() -> DataLoader[Any]:
        source = data()
        if isinstance(source, DataLoader):
            return source
        source.prepare_data()
        source.setup("fit")
        return source.train_dataloader()  # type: ignore[no-any-return]

    def build_dataset() -> Dataset[Any]:
        return loader().dataset

    def build_optimizer(parameters: Iterable[Any], **options: Any) -> Optimizer:  # noqa: ARG001
        return with_options(_optimizer_of(built[0]), options)

    def collate_fn(samples: list[Any]) -> Any:
        return loader().collate_fn(samples)

    return Parts(build_model, build_dataset, loss_of_step, build_optimizer, collate_fn)


def _optimizer_of(trained: LightningModule) -> Optimizer:
    """Return the only optimizer that the module configures.

    Raises:
        ValueError: it configures none or several.
    """
    found: Any = trained.configure_optimizers()
    if isinstance(found, tuple) and found and isinstance(found[0], list):
        found = found[0]
    several = found if isinstance(found, list | tuple) else [found]
    ones = [one["optimizer"] if isinstance(one, Mapping) else one for one in several]
    if len(ones) != 1 or not isinstance(ones[0], Optimizer):
        raise ValueError(
            f"configure_optimizers of {type(trained).__name__} gives {len(ones)} optimizers, and a "
            "model.py has one. Search the script that trains it instead."
        )
    return ones[0]


class ApplyBest(Callback):
    """Apply what a best.yaml says of the process, and warn of what the Trainer has otherwise.

    Precision, accumulation and the DataLoader are arguments that you give:
    `Trainer(**best.arguments("lightning")["trainer"])`.
    """

    def __init__(self, path: str | Path, *, strict: bool = False) -> None:
        from autotune import load

        self.best = load(path, strict=strict)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set threads, cuDNN and matmul precision before the training."""
        if stage == "fit":
            self.best.apply_to_process()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn of the settings that the Trainer and its DataLoader have otherwise.

        Raises:
            MismatchError: in place of the warning, if `strict` is set.
        """
        asked = self.best.arguments("lightning")
        has = {
            "precision": trainer.precision,
            "accumulate_grad_batches": trainer.accumulate_grad_batches,
            **loader_settings(trainer.train_dataloader),
        }
        said = {"accumulate_grad_batches": 1, **asked["trainer"], **asked.get("dataloader", {})}
        warn_of(self.best, "the Trainer", has, said)
