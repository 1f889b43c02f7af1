"""What a search maximises, its constraints, and the verdict on one trial.

Every constraint is a margin in Optuna's sense:
feasible at or below 0; above 0, the relative excess over the limit. Each trial carries all margins,
in the order of `CONSTRAINTS`. An unknown margin is 0, which counts as feasible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from autotune.values.measurement import UNSTEADY, Measurement
from autotune.values.outcome import (
    Measured,
    NonFinite,
    OutOfMemory,
    TrialOutcome,
    as_failure,
    describe,
)
from autotune.values.text import size


@dataclass(frozen=True, slots=True)
class Objective:
    """The number that a search maximises: throughput, or the mean throughput of a run.

    The latter is N / (T_fix + N / X) for N samples. X is the throughput of the steady state, T_fix
    the one-time seconds, compilation included. Maximising it minimises the time of the run. For N
    to infinity it becomes X, the other objective.
    """

    run_samples: int | None = None
    """Samples in the run; None: a run without end."""
    unit: str = "samples/s"
    direction: ClassVar[Literal["maximize"]] = "maximize"

    @property
    def name(self) -> str:
        """Return the name by which a study notes it."""
        return "throughput" if self.run_samples is None else "run_time"

    @property
    def identity(self) -> str:
        """Return the text that must stay the same for a study to be continued."""
        return self.name if self.run_samples is None else f"{self.name} of {self.run_samples}"

    def value(self, run: Measurement) -> float:
        """Return the objective's value for one process, corrected for the machine's drift."""
        return self.worth(run.samples_per_second / run.machine_speed, fixed_seconds(run))

    def worth(self, rate: float, fixed: float) -> float:
        """Return it for the steady state's samples per second and the one-time seconds."""
        if self.run_samples is None:
            return rate
        return self.run_samples / (fixed + self.run_samples / rate)


THROUGHPUT = Objective()


def fixed_seconds(run: Measurement, cold_one_time_seconds: float = 0.0) -> float:
    """Return the seconds that a run pays once: start, building, compilation, warm-up.

    Args:
        run: the measurement of one process.
        cold_one_time_seconds: `one_time_seconds` of the first process with these settings. It
            counts if it is larger, because later ones find compiled code in the cache.
    """
    one_time = max(run.one_time_seconds, cold_one_time_seconds)
    return run.start_seconds + run.build_seconds + one_time


CONSTRAINTS = ("memory", "accuracy", "ran")
UNKNOWN = 0.0
VALUE = "value"
"""Attribute of a trial with the value of its verdict."""
# Least memory margin of a trial that ran out of memory, however little was missing.
_LEAST_EXCESS = 0.01
_FAILED = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of a trial: the objective's value, if there is one, and all margins."""

    value: float | None
    margins: Mapping[str, float]
    reason: str = ""
    """Reason for being infeasible; empty if feasible."""

    @property
    def feasible(self) -> bool:
        """Return True if every margin is at or below 0."""
        return all(margin <= 0 for margin in self.margins.values())


def judge(
    outcome: TrialOutcome,
    objective: Objective,
    memory_limit: int,
    accuracy: float | None = None,
    objection: str = "",
) -> Verdict:
    """Return the verdict on an outcome.

    Args:
        outcome: outcome of a trial.
        objective: the number to maximise.
        memory_limit: most memory that training may take, in bytes.
        accuracy: margin of the accuracy; None if unknown.
        objection: reason for a margin above 0: the value, the limit and the seeds.
    """
    if isinstance(outcome, Measured):
        found = _judge_measured(outcome.measurement, memory_limit, accuracy, objection)
        return Verdict(objective.value(outcome.measurement), *found)
    failure = as_failure(outcome)
    match failure:
        case OutOfMemory(_, _, peak):
            margins = _margins(memory=max((peak or 0) / memory_limit - 1, _LEAST_EXCESS))
        case NonFinite():
            margins = _margins(accuracy=_FAILED)
        case _:
            margins = _margins(ran=_FAILED)
    return Verdict(None, margins, describe(failure))


def _judge_measured(
    measurement: Measurement, memory_limit: int, accuracy: float | None, objection: str
) -> tuple[Mapping[str, float], str]:
    """Return the margins of a measured trial, and the reasons for those above 0."""
    peak = measurement.peak_memory_bytes
    memory = peak / memory_limit - 1
    reasons = []
    if memory > 0:
        reasons.append(
            f"memory: {size(peak)} is {100 * memory:.3g} % over the limit {size(memory_limit)}"
        )
    elif measurement.allocator_retries:
        reasons.append(f"memory: the allocator had to free cached memory, at {size(memory_limit)}")
    if measurement.allocator_retries:
        memory = max(memory, _LEAST_EXCESS)
    if accuracy is not None and accuracy > 0:
        reasons.append(objection)
    unsteady = UNSTEADY in measurement.flags
    if unsteady:
        reasons.append("never steady: torch.compile goes on compiling, or the clock jumps")
    ran = _FAILED if unsteady else -1.0
    margins = _margins(memory=memory, accuracy=UNKNOWN if accuracy is None else accuracy, ran=ran)
    return margins, "; ".join(reasons)


def _margins(
    memory: float = UNKNOWN, accuracy: float = UNKNOWN, ran: float = UNKNOWN
) -> dict[str, float]:
    return dict(zip(CONSTRAINTS, (memory, accuracy, ran), strict=True))
