"""Simulate the errors of confirmations beside another program that is busy in bursts.

    python -m benchmarks.neighbour [TIMES]

Nothing is trained. Clock, neighbour and noise are simulated; the project's own timer, rounds and
sequential test decide. Assumptions:

- There are two cores. The neighbour keeps one of them busy for a fifth of the time, in bursts of 5
  to 60 s.
- A process beside it runs 2 to 5 times as slowly, drawn anew for each, because two threads that
  wait for each other lose more than the core that is taken. With "both", both sides suffer so. With
  "one", only the candidate does if it is 1.3 times as fast, and only the baseline if both are
  equally fast. The other side then has one thread and runs 1 to 1.5 times as slowly.
- Processes of the same settings differ by 5 or 8 % (standard deviation), blocks by 1 %.
- A process takes 1.5 s to be ready, and a round 2 s more for its interpreter.

"counted" is a test without repeats, in which each round counts; "repeated" is the real one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean
from types import SimpleNamespace
from typing import cast

from autotune.comparison.race import race
from autotune.comparison.rounds import PLAN, Course, Participant
from autotune.configuration.training_config import TrainingConfig
from autotune.training.batches import Batches
from autotune.training.timing import Timer
from autotune.values.measurement import Block, Measurement, Noise

BUSY_SHARE, BURST_SECONDS = 0.2, (5.0, 60.0)
TWO_THREADS, ONE_THREAD = (2.0, 5.0), (1.0, 1.5)
TAKEN = 0.49
BLOCK_NOISE = 0.01
STEP_SECONDS, BATCH = 0.02, 8
READY_SECONDS, ROUND_SECONDS = 1.5, 2.0
HOUR = 3600.0
SEED = 5

OWN = Participant("baseline", TrainingConfig.of({"batch_size": 8}))
OTHER = Participant("other", TrainingConfig.of({"batch_size": 16}))


@dataclass
class Machine:
    """Two cores, one of them taken in bursts, on a clock of its own."""

    random: Random
    has_neighbour: bool
    now: float = 600.0
    bursts: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw the bursts of three hours, among which the confirmation begins."""
        rest = fmean(BURST_SECONDS) * (1 / BUSY_SHARE - 1)
        end = 0.0
        while self.has_neighbour and end < 3 * HOUR:
            start = end + self.random.expovariate(1 / rest)
            end = start + self.random.uniform(*BURST_SECONDS)
            self.bursts.append((start, end))

    def work(self, seconds: float, slower: float) -> None:
        """Advance the clock by work that takes `seconds` on a quiet machine.

        The work runs `slower` times as slowly during bursts.
        """
        for start, end in self.bursts:
            if end <= self.now:
                continue
            quiet = max(0.0, start - self.now)
            if seconds <= quiet:
                break
            seconds, self.now = seconds - quiet, self.now + quiet
            beside = min(seconds * slower, end - self.now)
            seconds, self.now = seconds - beside / slower, self.now + beside
            if seconds <= 0:
                return
        self.now += seconds

    def taken(self, since: float) -> float:
        """Return the share of the cores that the neighbour took since then, 0 to 1."""
        shared = (min(end, self.now) - max(start, since) for start, end in self.bursts)
        return TAKEN * sum(max(0.0, each) for each in shared) / max(self.now - since, 1e-9)


@dataclass(frozen=True)
class Side:
    """Speed of a simulated configuration."""

    speed: float
    """Speed relative to the baseline, on a quiet machine."""
    slower: tuple[float, float]
    """Range of the factor by which it is slower beside the neighbour."""


def timed(machine: Machine, side: Side, noise: float) -> Measurement:
    """Simulate one process, timed by the project's own timer."""
    random = machine.random
    slower, own = random.uniform(*side.slower), side.speed * math.exp(random.gauss(0.0, noise))
    machine.work(READY_SECONDS, slower)
    asked = machine.now

    def noise_since() -> Noise:
        nonlocal asked
        since, asked = asked, machine.now
        return Noise(foreign=machine.taken(since))

    batches = SimpleNamespace(
        ready=lambda: None,
        workers=0,
        boundary_seconds=[],
        wait_seconds=0.0,
        queued=0,
        accumulation_steps=1,
        clock=lambda: machine.now,
        synchronize=lambda: None,
    )
    timer = Timer(cast("Batches", batches), noise=noise_since)
    return _measurement(_driven(timer, machine, STEP_SECONDS / own, slower))


def _driven(timer: Timer, machine: Machine, step: float, slower: float) -> tuple[Block, ...]:
    """Return a timer's blocks with steps that take `step` seconds on a quiet machine."""
    course = timer.timing_blocks(PLAN, step, BATCH)
    while True:
        try:
            steps = next(course)
        except StopIteration as end:
            return cast("tuple[Block, ...]", end.value)
        machine.work(steps * step * math.exp(machine.random.gauss(0.0, BLOCK_NOISE)), slower)


def _measurement(blocks: tuple[Block, ...]) -> Measurement:
    return Measurement(
        blocks=blocks,
        boundary_seconds=(),
        epoch_samples=None,
        warmup_step_seconds=(),
        compile_seconds=0.0,
        start_seconds=READY_SECONDS,
        build_seconds=0.0,
        peak_memory_bytes=1,
    )


@dataclass(frozen=True)
class Found:
    """Result of one confirmation."""

    ratio: float | None
    """Confirmed speed-up; None if the candidate was refused."""
    processes: int
    """Number of processes that were timed."""
    seconds: float


def confirmed(machine: Machine, own: Side, other: Side, noise: float, repeats: bool) -> Found:
    """Simulate the sequential test of one candidate against the baseline."""
    began, processes = machine.now, 0

    def time(config: TrainingConfig, *_: object) -> Measurement:
        nonlocal processes
        if processes % 2 == 0:  # the first of a round
            machine.work(ROUND_SECONDS, ONE_THREAD[1])
        processes += 1
        return timed(machine, other if config == OTHER.config else own, noise)

    course = Course(
        time=time,
        worth=lambda _, run: run.samples_per_second,
        baseline=OWN,
        folder=Path("nowhere"),
        seed=machine.random.randrange(1 << 30),
        may_repeat=lambda: repeats,
    )
    *_, last = race(course, OTHER, family=1)
    ratio = last.comparison.ratio if last.has_won else None
    return Found(ratio, processes, machine.now - began)


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    noise: float
    suffers: str
    """Sides that the neighbour slows: "both", "one", or "nobody" without a neighbour."""
    repeats: bool
    """True if disturbed rounds are repeated."""

    def row(self, times: int) -> str:
        """Simulate candidates 1.3 times as fast and no faster; return the row of the table."""
        weak = TWO_THREADS if self.suffers == "both" else ONE_THREAD
        faster = self._confirmations(Side(1.0, weak), Side(1.3, TWO_THREADS), times)
        equal = self._confirmations(Side(1.0, TWO_THREADS), Side(1.0, weak), times)
        cells = [
            f"{100 * self.noise:.0f} %",
            self.suffers,
            "-" if self.suffers == "nobody" else "repeated" if self.repeats else "counted",
            _share(faster, lambda one: one.ratio is None),
            _share(faster, lambda one: one.ratio is not None and abs(one.ratio / 1.3 - 1) > 0.1),
            _share(equal, lambda one: one.ratio is not None),
            *(f"{fmean(one.processes for one in some):.1f}" for some in (faster, equal)),
            *(f"{fmean(one.seconds for one in some):.0f} s" for some in (faster, equal)),
        ]
        return f"| {' | '.join(cells)} |"

    def _confirmations(self, own: Side, other: Side, times: int) -> list[Found]:
        return [
            confirmed(
                Machine(Random(f"{SEED} {number}"), self.suffers != "nobody"),
                own,
                other,
                self.noise,
                self.repeats,
            )
            for number in range(times)
        ]


def _share(found: list[Found], holds: Callable[[Found], bool]) -> str:
    return f"{100 * fmean(map(holds, found)):.1f} %"


def main() -> None:
    """Simulate all cases and print the table."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    print(
        f"{times} confirmations each\n\n"
        "| processes differ by | suffers | disturbed rounds | 1.3x refused | 1.3x off by a tenth | "
        "1.0x called faster | processes, 1.3x | processes, 1.0x | time, 1.3x | time, 1.0x |\n"
        f"|{'---|' * 10}"
    )
    for noise in (0.05, 0.08):
        print(Case(noise, "nobody", repeats=True).row(times), flush=True)
        for suffers in ("both", "one"):
            for repeats in (False, True):
                print(Case(noise, suffers, repeats).row(times), flush=True)


if __name__ == "__main__":
    main()
