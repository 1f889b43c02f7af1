"""Find the parameters that a step of training uses, and if each step uses the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

Uses = Mapping[str, int]
"""Name of each parameter to its gradients in a step."""


def uses_in(model: nn.Module, losses: Iterable[Tensor]) -> list[dict[str, int]]:
    """Return the uses of each step, given the losses of some; gradients are dropped."""
    found = []
    for loss in losses:
        with counting(model) as uses:
            loss.backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        found.append(dict(uses))
    return found


@contextmanager
def counting(model: nn.Module) -> Iterator[dict[str, int]]:
    """Yield the gradients that each parameter gets in the block, by its name."""
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    uses = dict.fromkeys(trained, 0)

    def count(name: str) -> None:
        uses[name] += 1

    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: count(name))  # type: ignore[no-untyped-call]
        for name, parameter in trained.items()
    ]
    try:
        yield uses
    finally:
        for hook in hooks:
            hook.remove()


def unused_in(steps: Sequence[Uses]) -> tuple[str, ...]:
    """Return the parameters that no step uses."""
    return tuple(name for name in steps[0] if not any(uses[name] for uses in steps))


def graph_obstacle(steps: Sequence[Uses]) -> str:
    """Return why the graph of some steps, of any process, is not static; "" if it is."""
    if not steps:
        return "no step could be observed"
    for name in steps[0]:
        if len({uses[name] for uses in steps}) > 1:
            return f"steps differ in how they use {name}"
    return ""
