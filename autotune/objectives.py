"""What a search maximises. To add an objective, add an entry to `OBJECTIVES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from autotune.measurement import Measurement


@dataclass(frozen=True, slots=True)
class Objective:
    """A number read off a measurement, with its direction."""

    name: str
    unit: str
    direction: Literal["maximize"]
    value: Callable[[Measurement], float]


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("throughput", "samples/s", "maximize", lambda run: run.samples_per_second),
    )
}
