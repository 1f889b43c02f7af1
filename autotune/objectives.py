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
    worth: Callable[[float, float], float]
    """From the samples per second of the steady state and the seconds that are paid once."""
    run_samples: int | None = None
    """How long the run is that the worth is of; None where it has no end."""

    @property
    def identity(self) -> str:
        """What must not change while a study goes on."""
        return self.name if self.run_samples is None else f"{self.name} of {self.run_samples}"

    def value(self, run: Measurement) -> float:
        """What is maximised, from one process alone."""
        return self.worth(run.samples_per_second / run.machine_speed, fixed_seconds(run))


def fixed_seconds(run: Measurement, cold_one_time_seconds: float = 0.0) -> float:
    """What a run pays once: start of the process, building, compilation, the rest of the warm-up.

    A process that finds a compiled model in the cache hides what the first one paid, so the larger
    of what it saw and of what the first one saw counts.
    """
    one_time = max(run.one_time_seconds, cold_one_time_seconds)
    return run.start_seconds + run.build_seconds + one_time


def run_time(samples: int) -> Objective:
    """The time of a whole run of N samples, told as its throughput: N / (T_fix + N / X).

    X is the throughput of the steady state and T_fix what is paid once, compilation included. It is
    highest where the run takes the least time, and being a throughput it is maximised like the
    other objective, of which it is the limit for a run without end.
    """
    return Objective(
        "run_time",
        "samples/s",
        "maximize",
        lambda rate, fixed: samples / (fixed + samples / rate),
        samples,
    )


OBJECTIVES = {
    objective.name: objective
    for objective in (Objective("throughput", "samples/s", "maximize", lambda rate, _: rate),)
}
