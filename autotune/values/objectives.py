"""Objectives that a search maximises. To add one, add an entry to `OBJECTIVES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from autotune.values.measurement import Measurement


@dataclass(frozen=True, slots=True)
class Objective:
    """A number derived from a measurement, with its direction."""

    name: str
    unit: str
    direction: Literal["maximize"]
    worth: Callable[[float, float], float]
    """Function of the steady state's samples per second and of the one-time seconds."""
    run_samples: int | None = None
    """Samples in the run; None: a run without end."""

    @property
    def identity(self) -> str:
        """Return the text that must stay the same for a study to be continued."""
        return self.name if self.run_samples is None else f"{self.name} of {self.run_samples}"

    def value(self, run: Measurement) -> float:
        """Return the objective's value for one process, corrected for the machine's drift."""
        return self.worth(run.samples_per_second / run.machine_speed, fixed_seconds(run))


def fixed_seconds(run: Measurement, cold_one_time_seconds: float = 0.0) -> float:
    """Return the seconds that a run pays once: start, building, compilation, warm-up.

    Args:
        run: the measurement of one process.
        cold_one_time_seconds: `one_time_seconds` of the first process with these settings. It
            counts if it is larger, because later ones find compiled code in the cache.
    """
    one_time = max(run.one_time_seconds, cold_one_time_seconds)
    return run.start_seconds + run.build_seconds + one_time


def run_time(samples: int) -> Objective:
    """Return the objective for a run of N samples: its mean throughput, N / (T_fix + N / X).

    X is the throughput of the steady state, T_fix the one-time seconds, compilation included.
    Maximising it minimises the time of the run. For N to infinity it becomes X, the other
    objective.
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
