"""Lightning: a module and its data as a model.py, and the callback that applies a best.yaml.

Of either package, lightning or pytorch_lightning:

    BASELINE = {"batch_size": 64, "num_workers": 4}
    build_model, build_dataset, compute_loss, build_optimizer, collate_fn = from_lightning(
        MyModule, MyDataModule, BASELINE
    )

`setup`, `configure_model`, `training_step`, `configure_optimizers` and `train_dataloader` are used.
Hooks that move or change a batch, schedulers and callbacks are not, nor is anything of a Trainer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from autotune.adapters.differences import Asked, in_force, loader_settings, tell_differences
from autotune.adapters.parts import (
    Built,
    Parts,
    TrainingStep,
    check_baseline,
    loss_of_step,
    with_options,
)
from autotune.knobs.base import Value

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError as missing:
        try:  # the package of the same code under its older name
            from pytorch_lightning import Callback
        except ModuleNotFoundError:
            raise missing from None


def from_lightning(
    module: Callable[[], LightningModule],
    data: Callable[[], LightningDataModule | DataLoader[Any]],
    baseline: Mapping[str, Value] | None = None,
) -> Parts:
    """Return the functions of a model.py.

    `build_dataset` raises ValueError if the DataLoader has other settings than the baseline. All of
    them raise ValueError if the module asks for a Trainer, which a model.py does not have.

    Args:
        module: builds the module, such as its class. It is called anew for each training.
        data: builds the data module, or the DataLoader of the training.
        baseline: BASELINE of the model.py. Default: none, which is a batch size of 32.
    """
    built: Built[LightningModule] = Built(lambda one: one)

    def build_model() -> nn.Module:
        trained = module()
        _set_up(trained)
        built.add(trained)
        return TrainingStep(trained, _step_of(trained))

    @cache
    def loader() -> DataLoader[Any]:
        return _loader_of(data())

    def build_dataset() -> Dataset[Any]:
        check_baseline("the DataLoader", _settings_of(loader()), baseline)
        return loader().dataset

    def build_optimizer(parameters: Iterable[Any], **options: Any) -> Optimizer:
        return with_options(_optimizer_of(built.owner_of(parameters)), options)

    def collate_fn(samples: list[Any]) -> Any:
        return loader().collate_fn(samples)

    def compute_loss(model: nn.Module, batch: Any) -> Tensor:
        # Around what is compiled, which a block inside would break up.
        with _without_trainer(model.trained):
            return loss_of_step(model, batch)

    return Parts(build_model, build_dataset, compute_loss, build_optimizer, collate_fn)


def _set_up(trained: LightningModule) -> None:
    if not trained.automatic_optimization:
        raise ValueError(
            f"{type(trained).__name__} sets automatic_optimization = False: its training_step "
            "steps the optimizer itself. Search the script that trains it instead."
        )
    with _without_trainer(trained):
        trained.setup("fit")
        trained.configure_model()


def _loader_of(source: LightningDataModule | DataLoader[Any]) -> DataLoader[Any]:
    """Return the only DataLoader of the training.

    Raises:
        ValueError: there are several.
    """
    if isinstance(source, DataLoader):
        return source
    source.prepare_data()
    source.setup("fit")
    found = source.train_dataloader()
    if not isinstance(found, DataLoader):
        raise ValueError(
            f"train_dataloader of {type(source).__name__} gives a {type(found).__name__}, and "
            "a model.py has one DataLoader. Search the script that trains with it instead."
        )
    return found


def _settings_of(loader: DataLoader[Any]) -> dict[str, Value]:
    """Return what the DataLoader has, by the name of its knob."""
    found: dict[str, Value] = {"num_workers": loader.num_workers}
    if loader.batch_size is not None:
        found["batch_size"] = loader.batch_size
    if torch.cuda.is_available():  # pinned memory is nothing on a CPU
        found["pin_memory"] = loader.pin_memory
    if loader.num_workers:
        found["persistent_workers"] = loader.persistent_workers
        found["prefetch_factor"] = loader.prefetch_factor
    return found


@contextmanager
def _without_trainer(trained: Any) -> Iterator[None]:
    """Tell what to do where the module asks for its Trainer in this block.

    Raises:
        ValueError: it does.
    """
    try:
        yield
    except RuntimeError as error:
        if "not attached to a `Trainer`" not in str(error):
            raise
        raise ValueError(
            f"{type(trained).__name__} uses self.trainer, and a model.py has none. Search the "
            "script that trains it instead."
        ) from error


def _step_of(trained: LightningModule) -> Callable[[Any], Any]:
    """Return the module's training step, which may take the batch's number as well."""
    taken = inspect.signature(trained.training_step).parameters
    numbers = (0,) if len(taken) > 1 else ()
    return lambda batch: trained.training_step(batch, *numbers)


def _optimizer_of(trained: LightningModule) -> Optimizer:
    """Return the only optimizer that the module configures.

    Raises:
        ValueError: it configures none or several, or asks its Trainer, which there is not.
    """
    with _without_trainer(trained):
        found: Any = trained.configure_optimizers()
    if isinstance(found, tuple) and found and isinstance(found[0], list):
        found = found[0]
    several = found if isinstance(found, list | tuple) else [found]
    ones = [one["optimizer"] if isinstance(one, Mapping) else one for one in several]
    if len(ones) != 1 or not isinstance(ones[0], Optimizer):
        number = sum(isinstance(one, Optimizer) for one in ones)
        raise ValueError(
            f"configure_optimizers of {type(trained).__name__} gives {number} optimizers, and a "
            "model.py has one. Search the script that trains it instead."
        )
    return ones[0]


class ApplyBest(Callback):
    """Apply what a best.yaml says of the process, and warn of what the Trainer has otherwise.

    Precision and accumulation are arguments that you give:
    `Trainer(**best.arguments("lightning")["trainer"])`. So are those of the DataLoader and the
    optimizer; torch.compile and channels_last are calls in your module.
    """

    def __init__(self, path: str | Path, *, strict: bool = False) -> None:
        from autotune import load

        self.best = load(path, strict=strict)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set threads, cuDNN and matmul precision before the training."""
        if stage == "fit":
            self.best.apply_to_process()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn of the settings that the Trainer, its DataLoader, model and optimizers lack.

        Raises:
            MismatchError: in place of the warning, if `strict` is set and one has another value.
        """
        found = self.best.arguments_and_left("lightning")
        sections = found.values
        said = {
            "accumulate_grad_batches": 1,
            **sections["trainer"],
            **sections.get("dataloader", {}),
        }
        has = {
            "precision": trainer.precision,
            "accumulate_grad_batches": trainer.accumulate_grad_batches,
            **loader_settings(trainer.train_dataloader),
        }
        groups = [group for one in trainer.optimizers for group in one.param_groups]
        # Lightning unwraps torch.compile(module) and compiles these two.
        live = in_force(pl_module, groups, (pl_module.forward, pl_module.training_step))
        tell_differences(self.best, "the Trainer", Asked(said, found.left), has, live)
