"""The answer in a training script of your own: the same settings, put into force the same way.

    best = autotune.load("best.yaml")
    best.apply_to_process()
    model = best.prepare(build_model().to(device))
    optimizer = AdamW(model.parameters(), lr=best.lr(1e-3), **best.optimizer_kwargs())
    for batch in best.loader(dataset, shuffle=True):
        with best.autocast(device):
            loss = compute_loss(model, best.transfer(batch, device))

Nothing of it is in the way where you do something yourself: each method stands alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autotune.best import NOT_MEASURED, AccuracyEvidence, BestConfig
from autotune.config import TrainingConfig, render
from autotune.mismatch import difference, report

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    from autotune.training.settings import Settings


class Best:
    """A best.yaml whose settings can be put into force."""

    def __init__(self, answer: BestConfig, *, strict: bool = False) -> None:
        self.answer = answer
        """The file as it was read: configuration, evidence, constraints, machine, provenance."""
        self.config = answer.training_config
        self._strict = strict

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Best) and self.answer == other.answer

    def __hash__(self) -> int:
        return hash(self.config)

    def __repr__(self) -> str:
        return f"<Best: {self.explain().splitlines()[0]}>"

    @cached_property
    def settings(self) -> Settings:
        """The configuration in PyTorch's terms; importing torch is put off until it is needed."""
        from autotune.training.settings import Settings

        return Settings(self.config)

    def apply_to_process(self) -> None:
        """Threads, cuDNN and matmul settings of this process; before the first operation.

        What has to be in the environment before Python starts cannot be set here: see
        `autotune export --format env`. Warns where the file was made for another accelerator.

        Raises:
            MismatchError: instead of the warning, where the file was loaded with `strict`.
        """
        name = f"the answer of study {self.answer.provenance.study}"
        report(name, self._other_device(), strict=self._strict)
        self.settings.apply_to_process()

    def _other_device(self) -> list[str]:
        """That the accelerator is not the one in the file; anyone may train on the CPU."""
        recorded = self.answer.machine.device
        if recorded == "cpu":
            return []
        from autotune.training.inspection import accelerator_name

        here = accelerator_name()
        return [] if here == recorded else [difference("device", recorded, here)]

    def prepare(self, model: nn.Module) -> nn.Module:
        """The model to train, from one on its device: memory format and torch.compile."""
        return self.settings.prepare(model)

    def optimizer_kwargs(self) -> dict[str, Any]:
        """Arguments for the optimizer, such as `fused=True`."""
        return self.settings.optimizer_kwargs()

    def lr(self, lr: float) -> float:
        """The learning rate for the new batch size, by the rule that the search was told."""
        return lr * self.answer.lr_scaling.factor

    def loader(self, dataset: Any, **kwargs: Any) -> DataLoader[Any]:
        """A DataLoader with batch size, workers and pinning; `kwargs` win over the file.

        Incomplete last batches are left out, as they were when it was measured.
        """
        from torch.utils.data import DataLoader

        own = {"drop_last": True, **self.settings.loader_kwargs()}
        for name in _excluded_by(kwargs):
            own.pop(name, None)
        return DataLoader(dataset, **{**own, **kwargs})

    def transfer(self, batch: Any, device: torch.device) -> Any:
        """A batch on the device, however nested; asynchronous where it lies in pinned memory."""
        return self.settings.transfer(batch, device)

    def autocast(self, device: str | torch.device) -> AbstractContextManager[None]:
        """What the forward pass and the loss run under."""
        return self.settings.autocast(device)

    def scaler(self, device: str | torch.device) -> torch.amp.GradScaler:
        """A gradient scaler; disabled, and free of cost, unless the file asks for float16."""
        return self.settings.scaler(device)

    def explain(self) -> str:
        """In a few lines: what the file changes, what that brings, and what it was held to."""
        evidence, accuracy = self.answer.evidence, self.answer.constraints.accuracy
        if self.answer.keeps_baseline:
            return "keep your settings: nothing was faster beyond the noise"
        (low, high), ratio = evidence.speedup.ci95, evidence.speedup.ratio
        changed = self.config.differences(TrainingConfig.of(evidence.baseline.config))
        lines = [
            f"{ratio:.2f}x faster ({low:.2f} to {high:.2f}): {render(changed)}",
            f"{evidence.baseline.samples_per_second:g} to {evidence.best.samples_per_second:g} "
            f"samples/s on {self.answer.machine.device}",
            _quality(accuracy),
        ]
        if run := evidence.predicted_run:
            was, now = run.baseline_seconds, run.best_seconds
            lines.append(f"a run of {run.samples} samples, predicted: {was:g} s to {now:g} s")
        if self.answer.lr_scaling.factor != 1:
            lines.append(f"learning rates times {self.answer.lr_scaling.factor:g}")
        if accuracy.needs_full_run:
            lines.append("the batch size changed: check one full training before you rely on it")
        return "\n".join(lines)


def _excluded_by(kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Arguments of the file that DataLoader refuses beside those of the caller."""
    if kwargs.get("num_workers") == 0:
        yield from ("prefetch_factor", "persistent_workers")
    if kwargs.get("batch_sampler") is not None:
        yield from ("batch_size", "drop_last")
    if "batch_size" in kwargs and kwargs["batch_size"] is None:
        yield "drop_last"


def _quality(accuracy: AccuracyEvidence) -> str:
    if not accuracy.is_measured:
        return f"quality {NOT_MEASURED}"
    return (
        f"{accuracy.metric}: {accuracy.baseline:g} to {accuracy.best:g} after "
        f"{accuracy.samples} samples, over {accuracy.seeds} seeds"
    )
