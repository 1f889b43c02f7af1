"""Facts on several processes: formats they can exchange, parameters they use, batches they have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from autotune.knobs.ranks import COMM_DTYPE

Uses = Mapping[str, int]
"""Name of each parameter to its gradients in a step."""
# Relative; a mean of a few numbers of equal size is rounded by less in bfloat16.
_ROUNDING = 0.05


def comm_dtypes(device: torch.device) -> tuple[str, ...]:
    """Return the formats in which torch's compression hooks average gradients on this backend.

    Each is tried with a real exchange, so every process of the default group has to call it.
    """
    offered = (str(value) for value in COMM_DTYPE.values.options if value is not None)
    return tuple(name for name in offered if _averages(name, device))


def _averages(name: str, device: torch.device) -> bool:
    model = nn.Linear(1, 1, bias=False, device=device)
    ddp = DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [device])
    try:
        COMM_DTYPE.on_ddp(name, ddp)
        # The gradient is the input: 1 on rank 0, 2 on rank 1.
        ddp(torch.full((1, 1), distributed.get_rank() + 1.0, device=device)).sum().backward()
        found = float(model.weight.grad)  # type: ignore[arg-type]
    except (RuntimeError, TypeError, ValueError):
        return False
    return math.isclose(found, (distributed.get_world_size() + 1) / 2, rel_tol=_ROUNDING)


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
    varying = (name for name in steps[0] if len({uses[name] for uses in steps}) > 1)
    name = next(varying, None)
    return "" if name is None else f"steps differ in how they use {name}"


def epochs_obstacle(batches: Sequence[int | None]) -> str:
    """Return which processes have fewer batches in an epoch than others; "" if all have as many.

    In the user's own loop the others would wait for them for ever.

    Args:
        batches: those of each process in the last epoch that ended, by rank; None if none did in as
            many steps.
    """
    if len(set(batches)) == 1:
        return ""
    fewest = min(count for count in batches if count is not None)
    short = " and ".join(f"rank {rank}" for rank, count in enumerate(batches) if count == fewest)
    told = ", ".join(f"rank {n}: {'more' if c is None else c}" for n, c in enumerate(batches))
    return (
        f"{short} has fewer batches in an epoch than others ({told}), which would wait for ever. "
        "Give each process equally many samples"
    )
