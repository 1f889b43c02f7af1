"""Faults for the numerics check to find: each changes a training loop as a wrong kernel would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD

from autotune.training.training_setup import TrainingSetup
from benchmarks.numerics_models import ALPHABET, CLASSES

Fault = Callable[[TrainingSetup], TrainingSetup | None]
"""Function that returns the loop with the fault, or None where it changes nothing."""
Batch = tuple[Tensor, ...]


# The optimizer


def _every_group(change: Callable[[dict[str, Any]], object]) -> Fault:
    """Change each parameter group before the first step."""

    def broken(setup: TrainingSetup) -> TrainingSetup:
        for group in setup.optimizer.param_groups:
            change(group)
        return setup

    return broken


def _after_steps(change: Callable[[TrainingSetup], object], each: bool = False) -> Fault:
    """Change the loop after its first step, or after each."""

    def broken(setup: TrainingSetup) -> TrainingSetup:
        steps = iter(range(1000))

        def after(*_: object) -> None:
            if next(steps) == 0 or each:
                change(setup)

        setup.optimizer.register_step_post_hook(after)
        return setup

    return broken


def _set_rate(factor: float) -> Callable[[dict[str, Any]], object]:
    return lambda group: group.update(lr=group["lr"] * factor)


def _groups(change: Callable[[dict[str, Any]], object]) -> Callable[[TrainingSetup], object]:
    return lambda setup: [change(group) for group in setup.optimizer.param_groups]


def _forget_momentum(group: dict[str, Any]) -> None:
    if "betas" in group:
        group["betas"] = (0.0, group["betas"][1])
    else:
        group["momentum"] = 0.0


def _late_count(setup: TrainingSetup) -> None:
    for state in setup.optimizer.state.values():
        state["step"] += 1000


def _only_adam(fault: Fault) -> Fault:
    return lambda setup: None if isinstance(setup.optimizer, SGD) else fault(setup)


def _without_updates(names: Callable[[int, list[nn.Parameter]], list[nn.Parameter]]) -> Fault:
    """Leave parameters as they are: `names` gives those to leave out of each step."""

    def broken(setup: TrainingSetup) -> TrainingSetup:
        steps = iter(range(1000))

        def before(*_: object) -> None:
            for parameter in names(next(steps), list(setup.model.parameters())):
                parameter.grad = None

        setup.optimizer.register_step_pre_hook(before)
        return setup

    return broken


def _never_zeroed(setup: TrainingSetup) -> TrainingSetup:
    setup.optimizer.zero_grad = lambda **_: None  # type: ignore[method-assign, assignment, misc]
    return setup


# Gradients


def _gradients(change: Callable[[Tensor], Tensor]) -> Fault:
    """Change the gradient of each parameter."""

    def broken(setup: TrainingSetup) -> TrainingSetup:
        for parameter in setup.model.parameters():
            parameter.register_hook(change)
        return setup

    return broken


def _one_layer(change: Callable[[Tensor], Tensor]) -> Fault:
    """Change the gradient of the second weight."""

    def broken(setup: TrainingSetup) -> TrainingSetup:
        weights = [p for p in setup.model.parameters() if p.dim() > 1]
        weights[1].register_hook(change)
        return setup

    return broken


def _noisy(gradient: Tensor) -> Tensor:
    noise = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(1))
    return gradient + 0.3 * gradient.std(correction=0) * noise


def _frozen(setup: TrainingSetup) -> TrainingSetup:
    next(setup.model.parameters()).requires_grad_(requires_grad=False)
    return setup


# Loss and batches


def _loss(change: Callable[[Tensor], Tensor]) -> Fault:
    """Change the loss."""

    def broken(setup: TrainingSetup) -> TrainingSetup:
        right = setup.workload.compute_loss
        workload = replace(
            setup.workload, compute_loss=lambda model, batch: change(right(model, batch))
        )
        return replace(setup, workload=workload)

    return broken


def _batches(change: Callable[[Batch], Batch]) -> Fault:
    """Change what the loss is computed from."""

    def broken(setup: TrainingSetup) -> TrainingSetup:
        right = setup.workload.compute_loss
        workload = replace(
            setup.workload, compute_loss=lambda model, batch: right(model, change(tuple(batch)))
        )
        return replace(setup, workload=workload)

    return broken


def _relabelled(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    if len(batch) > 1:
        return batch[0], change(batch[1]) % CLASSES
    (codes,) = batch
    return (torch.cat([codes[:, :1], change(codes)[:, 1:] % ALPHABET], dim=1),)


def _stale_batch(setup: TrainingSetup) -> TrainingSetup | None:
    kept: list[Batch] = []

    def first(batch: Batch) -> Batch:
        kept.append(batch)
        return kept[0]

    return _batches(first)(setup)


# The model


def _weights(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Fault:
    """Compute with other weights than those that are updated."""

    def broken(setup: TrainingSetup) -> TrainingSetup:
        right = setup.workload.compute_loss

        def loss(model: nn.Module, batch: Any) -> Tensor:
            values = change({name: p.detach() for name, p in model.named_parameters()})
            used = {n: p + (values[n] - p).detach() for n, p in model.named_parameters()}
            return right(_Calling(model, used), batch)

        return replace(setup, workload=replace(setup.workload, compute_loss=loss))

    return broken


class _Calling(nn.Module):
    """A model called with other weights."""

    def __init__(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.call = lambda *inputs: functional_call(model, dict(weights), inputs)

    def forward(self, *inputs: Tensor) -> Any:
        """Call the model."""
        return self.call(*inputs)


def _stale_weights(setup: TrainingSetup) -> TrainingSetup | None:
    kept: list[dict[str, Tensor]] = []

    def first(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        kept.append({name: weight.clone() for name, weight in weights.items()})
        return kept[0]

    return _weights(first)(setup)


def _outputs(change: Callable[[Tensor], Tensor], of: tuple[type, ...], most: int = 1000) -> Fault:
    """Change what layers of some types return."""

    def broken(setup: TrainingSetup) -> TrainingSetup | None:
        layers = [layer for layer in setup.model.modules() if isinstance(layer, of)][:most]
        for layer in layers:
            layer.register_forward_hook(lambda _layer, _inputs, output: change(output))
        return setup if layers else None

    return broken


def _through(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor.to(dtype).to(tensor.dtype)


def _without_channel(tensor: Tensor) -> Tensor:
    keep = torch.ones(tensor.shape[1], dtype=tensor.dtype)
    keep[0] = 0
    return tensor * keep.view(1, -1, *[1] * (tensor.dim() - 2))


def _as_in_memory(tensor: Tensor) -> Tensor:
    return tensor.permute(0, 2, 3, 1).reshape(tensor.shape)


def _norms(change: Callable[[_BatchNorm], object]) -> Fault:
    def broken(setup: TrainingSetup) -> TrainingSetup | None:
        norms = [layer for layer in setup.model.modules() if isinstance(layer, _BatchNorm)]
        for layer in norms:
            change(layer)
        return setup if norms else None

    return broken


def _attribute(name: str, value: object) -> Fault:
    def broken(setup: TrainingSetup) -> TrainingSetup | None:
        if not hasattr(setup.model, name):
            return None
        setattr(setup.model, name, value)
        return setup

    return broken


_LINEAR = (nn.Linear, nn.Conv2d)
FAULTS: Mapping[str, Fault] = {
    # The optimizer
    "half the learning rate": _every_group(_set_rate(0.5)),
    "half the learning rate from the second step on": _after_steps(_groups(_set_rate(0.5))),
    "uphill from the second step on": _after_steps(_groups(_set_rate(-1))),
    "no momentum from the second step on": _after_steps(_groups(_forget_momentum)),
    "state lost after each step": _after_steps(lambda s: s.optimizer.state.clear(), each=True),
    "no bias correction from the second step on": _only_adam(_after_steps(_late_count)),
    "weight decay of 1": _every_group(lambda group: group.update(weight_decay=1.0)),
    "weight decay lost": _every_group(lambda group: group.update(weight_decay=0.0)),
    "the last layer is not updated": _without_updates(lambda _, all_: all_[-2:]),
    "the first layer is not updated after the first step": _without_updates(
        lambda step, all_: all_[:2] if step else []
    ),
    "every second step is skipped": _without_updates(lambda step, all_: all_ if step % 2 else []),
    # Gradients
    "gradients twice as large": _gradients(lambda g: 2 * g),
    "gradients half as large": _gradients(lambda g: g / 2),
    "gradients 1.2 times as large": _gradients(lambda g: 1.2 * g),
    "gradients keep the scaler's 65536": _gradients(lambda g: 65536 * g),
    "gradients uphill": _gradients(torch.neg),
    "gradients clipped to 0.001": _gradients(lambda g: g.clamp(-1e-3, 1e-3)),
    "gradients with noise of 30 %": _gradients(_noisy),
    "gradients added up over steps": _never_zeroed,
    "gradients below 0.001 lost": _gradients(lambda g: g * (g.abs() > 1e-3)),
    "gradients in 8 bits": _gradients(_through(torch.float8_e5m2)),
    "a layer's gradient is zero": _one_layer(torch.zeros_like),
    "a layer's gradient is transposed": _one_layer(lambda g: g.flatten().flip(0).view_as(g)),
    "the first weight is frozen": _frozen,
    # Loss and batches
    "the loss is reported 10 % too high": _loss(lambda loss: loss + 0.1 * loss.detach()),
    "the loss is divided by 8": _loss(lambda loss: loss / 8),
    "the loss is not a number": _loss(lambda loss: loss * float("nan")),
    "labels shifted by one": _batches(lambda b: _relabelled(b, lambda labels: labels + 1)),
    "labels of other samples": _batches(lambda b: _relabelled(b, lambda labels: labels.roll(1, 0))),
    "half of the batch is lost": _batches(lambda b: tuple(part[: len(part) // 2] for part in b)),
    "the first batch again and again": _stale_batch,
    # The model
    "weights as they were before the first step": _stale_weights,
    "activations in 8 bits": _outputs(_through(torch.float8_e4m3fn), _LINEAR),
    "a channel of the first layer is zero": _outputs(_without_channel, _LINEAR, most=1),
    "a layer's output is doubled": _outputs(lambda output: 2 * output, _LINEAR, most=1),
    "channels read in the order of memory": _outputs(_as_in_memory, (nn.Conv2d,)),
    "BatchNorm as in evaluation": _norms(lambda layer: layer.eval()),
    "BatchNorm's statistics are not updated": _norms(lambda layer: setattr(layer, "momentum", 0)),
    "dropout is off": _attribute("rate", 0.0),
    "the causal mask is lost": _attribute("causal", value=False),
}
