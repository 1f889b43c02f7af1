"""Apply the settings of a best.yaml in a training script, by the code that trials use.

    best = autotune.load("best.yaml")
    best.apply_to_process()
    model = best.prepare(build_model().to(device))
    optimizer = AdamW(model.parameters(), lr=best.lr(1e-3), **best.optimizer_kwargs())
    batches = best.batches(best.loader(dataset, shuffle=True), device)
    for number, batch in enumerate(batches, start=1):
        with best.autocast(device):
            loss = compute_loss(model, batch) / best.accumulation_steps
        loss.backward()
        if number % best.accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()

Each method stands alone: use those that you need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from autotune.configuration.best_config import BestConfig, explained
from autotune.configuration.mismatch import missing_variables, report, world_size
from autotune.knobs.base import Value
from autotune.process.common.interpreter import APPLIES, check_torch
from autotune.values.errors import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    from autotune.training.apply_settings import Settings


class Best:
    """Settings of a best.yaml, with methods that apply them."""

    def __init__(self, answer: BestConfig, *, strict: bool = False) -> None:
        self.answer = answer
        """Content of the file: configuration, evidence, constraints, machine, provenance."""
        self.config = answer.training_config
        self._strict = strict

    def __repr__(self) -> str:
        since = ", edited since" if self.answer.edits else ""
        return f"<Best: {self.explain().splitlines()[0]}{since}>"

    @cached_property
    def settings(self) -> Settings:
        """Return the configuration in PyTorch's terms; the first access imports torch.

        Raises:
            UsageError: torch is too old.
        """
        check_torch(APPLIES)
        from autotune.training.apply_settings import Settings

        return Settings(self.config)

    def apply_to_process(self) -> None:
        """Set threads, cuDNN and matmul precision of this process. Call it before any operation.

        It warns of environment variables that Python lacked at its start.

        Raises:
            MismatchError: in place of the warning, if the file was loaded with `strict`.
        """
        name = f"the result of study {self.answer.provenance.study}"
        report(name, missing_variables(self.config), strict=self._strict)
        self.settings.apply_to_process()

    def prepare(
        self, model: nn.Module, *, checkpoint: Callable[[nn.Module], object] | None = None
    ) -> nn.Module:
        """Return the model to train, with memory format and torch.compile applied.

        `model` is on its device already. The result runs compiled while gradients are recorded, and
        eager in an evaluation without them. `checkpoint` is the function of your model.py, which
        settings with `activation_checkpointing` need.

        Raises:
            UsageError: they need it, and it is None.
        """
        return self.settings.prepare(model, checkpoint)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return what each of several processes calls in training, given the prepared model.

        That is DistributedDataParallel with the file's settings. Every process gets the weights of
        rank 0. A process that trains alone gets its model back.

        Raises:
            UsageError: there are several processes and no process group.
        """
        import torch
        from torch import distributed

        has_group = distributed.is_available() and distributed.is_initialized()
        count = distributed.get_world_size() if has_group else world_size()
        if count == 1:
            return model
        if not has_group:
            raise UsageError(
                f"{count} processes were started, but there is no process group to train in. Call "
                "torch.distributed.init_process_group before best.wrap(model)."
            )
        first = next(model.parameters(), torch.empty(0))
        return self.settings.wrap(model, first.device)

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Return the context of a backward pass after which gradients are not exchanged yet.

        Use it for all batches of an optimizer step but the last one, as trials do. It does nothing
        for a model that is not wrapped.
        """
        from autotune.training.apply_settings import without_exchange

        return without_exchange(wrapped)

    def options(self) -> dict[str, Value]:
        """Return the arguments of build_model that the search found, by name."""
        return self.config.of_kind("options")

    def dataset_options(self) -> dict[str, Value]:
        """Return the arguments of build_dataset that the search found."""
        return self.config.of_kind("dataset_options")

    def optimizer_kwargs(self) -> dict[str, Any]:
        """Return arguments for the optimizer, such as `fused=True`."""
        return self.settings.optimizer_kwargs()

    @property
    def accumulation_steps(self) -> int:
        """Batches of the loader in an optimizer step; divide each batch's loss by it."""
        return int(self.config["accumulation_steps"] or 1)

    def lr(self, lr: float) -> float:
        """Return the learning rate for the new batch size, by the search's `--lr-scaling`."""
        return lr * self.answer.lr_scaling.factor

    def loader(self, dataset: Any, **kwargs: Any) -> DataLoader[Any]:
        """Return a DataLoader with batch size, workers and pinning; `kwargs` win over the file.

        Incomplete last batches are dropped, as in the measurements.
        """
        from torch.utils.data import DataLoader

        own = {"drop_last": True, **self.settings.loader_kwargs()}
        refused = set[str]()  # beside arguments of the caller
        if kwargs.get("num_workers") == 0:
            refused |= {"prefetch_factor", "persistent_workers"}
        if kwargs.get("batch_sampler") is not None:
            refused |= {"batch_size", "drop_last"}
        if kwargs.get("batch_size", 1) is None:
            refused.add("drop_last")
        kept = {name: value for name, value in own.items() if name not in refused}
        return DataLoader(dataset, **{**kept, **kwargs})

    def batches(self, loader: Iterable[Any], device: str | torch.device) -> Iterator[Any]:
        """Yield the batches of one epoch on the device: those of whole optimizer steps.

        What is left over for less than `accumulation_steps` batches is dropped, as in the
        measurements; a loader without a length gives all.

        Raises:
            UsageError: the loader has fewer batches than one optimizer step takes.
        """
        import torch

        target = torch.device(device)
        for batch in self._of_whole_steps(loader):
            yield self.transfer(batch, target)

    def _of_whole_steps(self, loader: Iterable[Any]) -> Iterator[Any]:
        steps = self.accumulation_steps
        try:
            count = len(loader)  # type: ignore[arg-type]
        except TypeError:
            return iter(loader)
        if count < steps:
            raise UsageError(
                f"The loader has {count} batches, and an optimizer step takes {steps} "
                "(accumulation_steps)."
            )
        return islice(iter(loader), count // steps * steps)

    def transfer(self, batch: Any, device: torch.device) -> Any:
        """Return a batch, however nested, on the device; pinned memory is copied asynchronously."""
        return self.settings.transfer(batch, device)

    def autocast(self, device: str | torch.device) -> AbstractContextManager[None]:
        """Return the autocast context for the forward pass and the loss."""
        return self.settings.autocast(device)

    def scaler(self, device: str | torch.device) -> torch.amp.GradScaler:
        """Return a gradient scaler, which is disabled unless the settings use float16."""
        return self.settings.scaler(device)

    def explain(self) -> str:
        """Return a few lines: changed settings, speed-up, quality, remarks."""
        return explained(self.answer)
