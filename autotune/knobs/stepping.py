"""Knobs that act as an optimizer steps: Python's garbage collector, groups of parameters.

Both work in any loop, because they hook into torch's optimizer steps.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.values.outcome import WorkloadFacts

if TYPE_CHECKING:
    from torch.optim import Optimizer

Group = Mapping[str, Any]
"""A group of parameters with its hyperparameters, as in `Optimizer.param_groups`."""
# The first steps make the optimizer's state and compile; these objects stay.
_WARM = 3
# Runs of the collector in a step below which they take negligible time.
_HARDLY_RUNS = 0.1
_OPTIMIZERS = "torch.optim."
_MERGES = "merges_groups"


class GarbageCollector(Knob):
    """Python's garbage collector, a state of this process."""

    name = "gc"
    default = None
    # A trial of few steps has to see the garbage of all steps between two collections.
    values = OneOf((None, "frozen", 10))
    summary = (
        "From the third step on, let Python's garbage collector skip objects that exist by then "
        "(frozen), or also run only every ten steps (10); null leaves it to Python."
    )
    pays = (
        "Batches of Python objects: with nested lists, collections took 19 % of the time, 2 % "
        "when frozen. Several processes, because all wait for the one that collects."
    )
    hurts = (
        "Frozen cycles are freed only when another optimizer steps; with 10, other cycles are "
        "freed every ten steps, so not during an evaluation."
    )
    call = "gc.collect(); gc.freeze(), for 10 also gc.disable() and gc.collect() every ten steps"
    source = "https://github.com/pytorch/torchtitan/blob/main/torchtitan/tools/utils.py"

    def __init__(self) -> None:
        self._value: Value = None
        self._steps = 0
        self._is_watching = False
        self._known: WeakSet[Optimizer] = WeakSet()

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        is_idle = facts.collections is not None and facts.collections < _HARDLY_RUNS
        return "Python's garbage collector hardly runs in training" if is_idle else None

    def on_process(self, value: Value) -> None:
        if self._value is not None:
            gc.unfreeze()
            gc.enable()
        self._value, self._steps = value, 0
        self._known.clear()
        if value is None or self._is_watching:
            return
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._is_watching = True  # not compiled with a step that is
        apart: Callable[..., Any] = torch.compiler.disable
        register_optimizer_step_post_hook(apart(self._stepped))
        os.register_at_fork(after_in_child=self._forked)

    def _stepped(self, optimizer: Optimizer, *_: object) -> None:
        if self._value is None:
            return
        if optimizer not in self._known:
            # Another training may begin, and the objects of the last one should be freed.
            self._known.add(optimizer)
            self._steps = 0
            gc.unfreeze()
        self._steps += 1
        if self._steps == _WARM:
            gc.collect()
            gc.freeze()
            if self._value != "frozen":
                gc.disable()
        elif isinstance(self._value, int) and self._steps == _WARM + self._value:
            gc.collect()
            self._steps = _WARM

    def _forked(self) -> None:
        """Let workers collect as usual: no optimizer steps in them."""
        if isinstance(self._value, int):
            gc.enable()

    def read_back(self, setup: Setup) -> Value:
        if self._steps < _WARM or not gc.get_freeze_count():
            return None
        return None if self._value != "frozen" and gc.isenabled() else self._value


class MergeParamGroups(Knob):
    """Groups of equal hyperparameters as one, while a step of torch's own optimizers lasts."""

    name = "merge_param_groups"
    default = False
    values = OneOf((False, True))
    summary = (
        "Let torch's optimizers update parameter groups of equal hyperparameters as one; outside "
        "of a step, param_groups are yours."
    )
    pays = (
        "Many groups, because each takes calls of its own: 28 or 465 small ones make a step on a "
        "CPU 1.1 (forloop) to 1.6 times (foreach) as long."
    )
    hurts = "Groups are compared in each step. Those that a scheduler sets apart stay apart."
    call = "torch.optim.AdamW(...) with fewer groups"
    source = "https://github.com/roboflow/rf-detr/pull/1423"

    def __init__(self) -> None:
        self._is_on = False
        self._merged: WeakSet[Optimizer] = WeakSet()

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        return None if facts.equal_groups else "no two parameter groups are equal"

    def on_process(self, value: Value) -> None:
        self._is_on = bool(value)
        self._merged.clear()
        if not value:
            return
        from torch import optim

        kinds: list[Any] = list(filter(inspect.isclass, vars(optim).values()))
        for kind in kinds:
            if "step" in vars(kind) and not hasattr(kind.step, _MERGES):
                # Within the hooks of a step, which see the groups as they are.
                is_hooked = getattr(kind.step, "hooked", False)
                kind.step = self._merging(kind.step.__wrapped__ if is_hooked else kind.step)

    def _merging(self, step: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        @functools.wraps(step)
        def merging(optimizer: Any, closure: Any = None) -> Any:
            if not self._is_on or torch.compiler.is_compiling():
                return step(optimizer, closure)
            self._merged.discard(optimizer)
            groups, fewer = optimizer.param_groups, merged(optimizer)
            if len(fewer) == len(groups):
                return step(optimizer, closure)
            loss = None
            if closure is not None:  # it is the script's, as its hooks are
                with torch.enable_grad():
                    loss = closure()
            optimizer.param_groups = fewer
            try:
                step(optimizer)
            finally:
                optimizer.param_groups = groups
            self._merged.add(optimizer)
            return loss

        setattr(merging, _MERGES, True)
        return merging

    def read_back(self, setup: Setup) -> Value:
        return setup.optimizer in self._merged


def merged(optimizer: Optimizer) -> Sequence[Group]:
    """Return the groups of an optimizer of torch's own, with those that are equal as one.

    Groups are equal if they have the same hyperparameters, devices and types. Entries that a
    scheduler or a script adds do not count.
    """
    groups = optimizer.param_groups
    if not f"{type(optimizer).__module__}.".startswith(_OPTIMIZERS) or len(groups) == 1:
        return groups
    found: dict[object, list[Group]] = defaultdict(list)
    for group in groups:
        kinds = frozenset((weight.device, type(weight)) for weight in group["params"])
        values = (group.get(name) for name in optimizer.defaults)
        key = (value if isinstance(value, Hashable) else repr(value) for value in values)
        found[(kinds, *key)].append(group)
    return [
        {**same[0], "params": [weight for group in same for weight in group["params"]]}
        if len(same) > 1
        else same[0]
        for same in found.values()
    ]


def has_equal_groups(optimizer: Optimizer) -> bool:
    """Return True if some groups of an optimizer could be one."""
    return len(merged(optimizer)) < len(optimizer.param_groups)


STEPPING_KNOBS: tuple[Knob, ...] = (GarbageCollector(), MergeParamGroups())
