"""Uphill by one setting at a time: what most trials of a search are spent on at first.

From the best configuration so far, one knob goes on to its next value; where that pays, the next
step starts from there. On smooth ground this finds the top in as many trials as there are knobs.
Where only a combination pays it stays where it is, so every few trials the sampler has its turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.config import TrainingConfig
from autotune.knobs.base import Value
from autotune.space import SearchSpace

SAMPLER_EVERY = 4
"""Of so many trials, one is the sampler's though there are steps left."""
# From what should pay most often to what seldom does: a judgement, no measurement.
_BY_EFFECT = (
    "num_workers",
    "amp_dtype",
    "batch_size",
    "compile_mode",
    "channels_last",
    "pin_memory",
    "num_threads",
    "fused_optimizer",
    "float32_matmul_precision",
)


def steps(space: SearchSpace, best: TrainingConfig) -> Iterator[TrainingConfig]:
    """The configurations one step on from `best`, those that promise most first."""
    for name, values in sorted(space.varied().items(), key=lambda item: _rank(item[0])):
        for value in following(values, best[name]):
            yield space.within(best.replace(**{name: value}))


def following(values: Sequence[Value], current: Value) -> Sequence[Value]:
    """The next larger number, else what comes after in the space's own order; none at the end."""
    larger = [v for v in _numbers(values) for start in _numbers([current]) if v > start]
    if larger:
        return [min(larger)]
    return values[values.index(current) + 1 :][:1] if current in values else ()


def _numbers(values: Sequence[Value]) -> list[int]:
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool)]


def _rank(name: str) -> int:
    return _BY_EFFECT.index(name) if name in _BY_EFFECT else len(_BY_EFFECT)
