"""Time two settings by hand, in plain torch: Python's collector, and parameter groups as one.

python -m benchmarks.hand_settings

CPU time is measured, on one thread, because other processes do not take from it. Of the collector,
it is its share of the time, since its longest scans are rare; of groups, the factor on the speed,
the median of rounds in which both sides take turns, with the least and the most.
"""

from __future__ import annotations

import functools
import gc
import random
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import nn

from autotune.knobs import KNOBS

_SECONDS, _BLOCK_SECONDS = 20.0, 0.4
_ROUNDS = 11
_OBJECTS = 300_000
Step = Callable[[], object]


def main() -> None:
    """Print both tables."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}")
    for name, step in {"tensors": on_tensors(), "lists": on_lists()}.items():
        for heap in (0, _OBJECTS):
            kept = [{"x": [random.random() for _ in range(8)]} for _ in range(heap)]
            for value in (None, "frozen", 10):
                print(
                    f"{name}, {len(gc.get_objects())} objects, gc={value}: {collected(step, value)}"
                )
            del kept
    for count in (28, 465):
        for options in ({}, {"foreach": True}, {"fused": True}):
            found = [turns(step) for step in grouped(count, options)]
            print(f"{count} groups, {options}: update {found[0]}, step {found[1]}", flush=True)


def collected(step: Step, value: Any) -> str:
    """Return which share of the time collections take under a value of the setting."""
    spent = [0.0, 0.0]

    def note(phase: str, _: object) -> None:
        spent[0] += time.process_time() * (1 if phase == "stop" else -1)

    KNOBS["gc"].on_process(None)
    gc.collect()
    KNOBS["gc"].on_process(value)
    for _ in range(60):
        step()
    gc.callbacks.append(note)
    begin, longest, steps = time.process_time(), 0.0, 0
    while (passed := time.process_time() - begin) < _SECONDS:
        before = spent[0]
        step()
        longest, steps = max(longest, spent[0] - before), steps + 1
    gc.callbacks.remove(note)
    KNOBS["gc"].on_process(None)
    per_step = f"a step of {1000 * passed / steps:.2f} ms"
    return f"{spent[0] / passed:.2%} of {per_step}, {1000 * longest:.0f} ms in one step at most"


def turns(step: Step) -> str:
    """Return the factor on the speed of a step with groups merged."""
    found = []
    for number in range(_ROUNDS):
        seconds = {}
        for value in (False, True) if number % 2 else (True, False):
            KNOBS["merge_param_groups"].on_process(value)
            seconds[value] = seconds_of(step)
        found.append(seconds[False] / seconds[True])
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def seconds_of(step: Step) -> float:
    """Return the CPU seconds of a step."""
    for _ in range(5):
        step()
    begin, steps = time.process_time(), 0
    while (passed := time.process_time() - begin) < _BLOCK_SECONDS:
        step()
        steps += 1
    return passed / steps


def on_tensors() -> Step:
    """A small network on a tensor."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
    optimizer = torch.optim.AdamW(model.parameters())
    return functools.partial(trained, model, optimizer, lambda: torch.randn(32, 64))


def on_lists() -> Step:
    """Batches made of nested lists: many containers live until a batch is done."""
    model = nn.Sequential(nn.EmbeddingBag(1000, 32), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters())

    def batch() -> torch.Tensor:
        words = [[[random.randrange(1000)] for _ in range(40)] for _ in range(64)]
        return torch.tensor([[word[0] for word in line] for line in words])

    return functools.partial(trained, model, optimizer, batch)


def trained(model: nn.Module, optimizer: Any, batch: Callable[[], torch.Tensor]) -> None:
    """Take a step on a new batch."""
    given = batch()
    optimizer.zero_grad()
    model(given).square().mean().backward()
    optimizer.step()


def grouped(count: int, options: dict[str, bool]) -> Iterator[Step]:
    """Yield an update, and a whole step, of small layers whose tensors are a group each."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range((count + 1) // 2)))
    weights = list(model.parameters())[:count]
    groups = [{"params": [w], "weight_decay": 0.1 if w.dim() > 1 else 0.0} for w in weights]
    KNOBS["merge_param_groups"].on_process(True)
    optimizer = torch.optim.AdamW(groups, **options)
    batch = torch.randn(32, 64)
    whole = functools.partial(trained, model, optimizer, lambda: batch)
    whole()
    yield optimizer.step
    yield whole


if __name__ == "__main__":
    main()
