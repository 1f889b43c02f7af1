"""Tell optimizers that share a loss from those that take turns, each with a loss of its own."""

from __future__ import annotations

import weakref

from torch.optim import Optimizer


class Turns:
    """The optimizers of a script, and which of them step after the same backward passes.

    Call `stepped` after every step of any optimizer.
    """

    def __init__(self) -> None:
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        """Optimizers that have stepped."""
        self.are_taken = False
        """True if an optimizer stepped after backward passes, another one alone after the next
        ones, and then the first one again. A new one that replaces an old one takes no turns."""
        self._backwards = 0
        # The only optimizer so far, which most trainings have; None if there was another one.
        self._only: weakref.ref[Optimizer] | None = None
        # Those that stepped since the last backward pass, and those that did so before it.
        self._now: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._before: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._returns = False

    def stepped(self, optimizer: Optimizer, backwards: int) -> None:
        """Record a step of an optimizer, with the number of backward passes so far.

        One that steps without a new backward pass shares the loss of the step before.
        """
        if self._only is not None and self._only() is optimizer:
            self._backwards = backwards
            return
        self._only = None if self.optimizers else weakref.ref(optimizer)
        if backwards > self._backwards:
            self._pass()
            self._backwards = backwards
            self._returns = optimizer in self.optimizers
        self._now.add(optimizer)
        self.optimizers.add(optimizer)

    def _pass(self) -> None:
        """Take the steps after the last backward pass as complete."""
        if self._returns and len(self._before) and self._now.isdisjoint(self._before):
            self.are_taken = True
        self._before, self._now = self._now, weakref.WeakSet()
