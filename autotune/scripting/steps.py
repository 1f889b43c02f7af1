"""Tell the steps of a script's training, and what its model is given in each.

A step is a torch optimizer's step. A script without one updates its weights itself, so each
outermost backward pass is a step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from autotune.process.common.patches import replace
from autotune.scripting.observed_training import bytes_in
from autotune.training.batches import samples_in

Stepper = Optimizer | None
"""The optimizer that stepped; None if the script updates its weights itself."""

# Libraries of environments for agents.
_ENVIRONMENTS = ("gym", "gymnasium", "pettingzoo", "dm_control")


class Steps:
    """The steps of one script. Call `watch` once."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Stepper], None]] = []
        """Functions that are called after each step, in this order."""
        self.passed: list[Callable[[bool], None]] = []
        """Functions that are called after each outermost backward pass, before its step. They get
        True while an optimizer steps, which may call the model again and again."""
        self.befores: list[Callable[[Optimizer], None]] = []
        """Functions that are called before each optimizer's step."""
        self.losses: list[Callable[[Any], None]] = []
        """Functions that get what each outermost backward pass is called on, before it runs."""
        self.device: torch.device | None = None
        """Device of the first loss, if backward was called on one."""
        self._in_closure = False
        self._depth = 0
        self._optimizer_built = False

    def watch(self) -> None:
        """Tell every step from now on; patches `torch.autograd` for the process."""

        def build(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            if not self._optimizer_built:
                self._watch_optimizers()

        replace(Optimizer, "__init__", build)
        replace(torch.autograd, "backward", self._backward)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count no backward pass in this block."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _watch_optimizers(self) -> None:
        """Register the hooks, which are not compiled with a step that the script compiles."""
        self._optimizer_built = True
        apart: Callable[..., Any] = torch.compiler.disable
        register_optimizer_step_pre_hook(apart(self._before_optimizer))
        register_optimizer_step_post_hook(apart(self._after_optimizer))

    def _backward(
        self, original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if self._depth:  # a checkpointed block differentiates within a backward pass
            return original(tensors, *args, **kwargs)
        if isinstance(tensors, Iterator):
            tensors = tuple(tensors)  # which can be looked at before the call
        for look in self.losses:
            look(tensors)
        self._depth = 1
        try:
            result = original(tensors, *args, **kwargs)
        finally:
            self._depth = 0
        if self.device is None:
            first = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
            self.device = getattr(first, "device", None)
        for passed in self.passed:
            passed(self._in_closure)
        for listen in () if self._optimizer_built else self.listeners:
            listen(None)
        return result

    def _before_optimizer(self, optimizer: Optimizer, *_: object) -> None:
        self._in_closure = True
        for listen in self.befores:
            listen(optimizer)

    def _after_optimizer(self, optimizer: Optimizer, *_: object) -> None:
        self._in_closure = False
        for listen in self.listeners:
            listen(optimizer)


class ModelCalls:
    """Samples that a script's model is given in training, if no loader shows them.

    They are the leading dimension of the first tensor of a call, of the first call in each backward
    pass. Time between such calls in which the model is evaluated is left out.
    """

    def __init__(self) -> None:
        self.size: int | None = None
        """Samples of the first call whose samples are known."""
        self.sample_bytes = 0
        """Bytes of the tensors of one sample, from that call."""
        self.backwards = 0
        """Outermost backward passes so far."""
        self.aside_seconds = 0.0
        """Seconds of evaluations so far."""
        self._is_first = True
        self._are_seen, self._is_called = False, False
        self._passes = self._samples = 0
        self._evaluated: tuple[float, float] | None = None

    def called(self, arguments: Iterable[Any]) -> None:
        """Record a call in training with these arguments."""
        self._are_seen = self._is_called = True
        if self._evaluated is not None:
            self._leave_out()
        if not self._is_first:
            return
        given = tuple(arguments)
        size = next(filter(None, map(samples_in, given)), 0)
        self._is_first = False
        self._samples += size
        if self.size is None and size:
            self.size, self.sample_bytes = size, bytes_in(given) // size

    def evaluated(self, start: float) -> None:
        """Record a call in an evaluation, which began at `start` and has just ended.

        This is how an agent collects its samples.
        """
        if has_environments():
            return
        first = start if self._evaluated is None else self._evaluated[0]
        self._evaluated = (first, time.perf_counter())

    def _leave_out(self) -> None:
        assert self._evaluated is not None
        self.aside_seconds += self._evaluated[1] - self._evaluated[0]
        self._evaluated = None

    def passed(self, in_closure: bool) -> None:
        """Record a backward pass.

        It is one of the same batch in an optimizer's step, and where the model was not called since
        the last one, as with two losses of one output.
        """
        self.backwards += 1
        is_same = in_closure or (self._are_seen and not self._is_called)
        if not (is_same and self._passes):
            self._passes += 1
            self._is_first = not in_closure
        self._is_called = False

    def stepped(self) -> tuple[int, int]:
        """Return the backward passes since the last step, and the samples in them."""
        found = self._passes, self._samples
        self._passes = self._samples = 0
        self._is_first = True
        return found


def has_environments() -> bool:
    """Return True if the script has imported a library of environments for an agent."""
    return not sys.modules.keys().isdisjoint(_ENVIRONMENTS)
