"""A clock that moves only when a test says so, and loaders and steps that move it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from autotune.configuration.job import MeasurePlan
from autotune.training.batches import Batches
from autotune.training.timing import Timer, WarmUp, drive
from autotune.values.measurement import QUIET, Block, Noise


@dataclass
class Clock:
    """Seconds that pass by being told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Loader:
    """Epochs of numbered batches; each batch, start and end of an epoch takes its time."""

    clock: Clock
    epoch: int
    batch_seconds: float = 0.0
    start_seconds: float = 0.0
    end_seconds: float = 0.0
    started: int = 0

    def __iter__(self) -> Iterator[int]:
        self.started += 1
        self.clock.wait(self.start_seconds)
        return self._batches()

    def _batches(self) -> Iterator[int]:
        for number in range(self.epoch):
            self.clock.wait(self.batch_seconds)
            yield number
        self.clock.wait(self.end_seconds)


@dataclass(frozen=True)
class Driven(Timer):
    """A timer that takes the steps itself."""

    step: Callable[[Batches], object] = next

    def warm_up(self, plan: MeasurePlan, batch_size: int = 1) -> WarmUp:
        requests = self.warming_up(plan, self.batches.accumulation_steps * batch_size)
        return drive(self.together(requests), partial(self.step, self.batches))

    def time_blocks(
        self, plan: MeasurePlan, step_seconds: float, batch_size: int
    ) -> tuple[Block, ...]:
        each = self.batches.accumulation_steps * batch_size
        requests = self.timing_blocks(plan, step_seconds, each)
        return drive(self.together(requests), partial(self.step, self.batches))


@dataclass
class Bench:
    """A timer over a loader, with steps of given seconds; the last of them goes on for ever."""

    loader: Loader
    seconds: list[float]
    steps: int = 0
    synchronised: list[int] = field(default_factory=list)
    noises: list[Noise] = field(default_factory=list)
    """Noise of each block, and of the warm-up before them."""
    compiling: set[int] = field(default_factory=set)
    """Numbers of the steps at which something is compiled."""
    compilations: int = 0

    def step(self, batches: Iterator[object]) -> None:
        next(batches)
        self.loader.clock.wait(self.seconds[min(self.steps, len(self.seconds) - 1)])
        self.compilations += self.steps in self.compiling
        self.steps += 1

    def timer(self, per_step: int = 1) -> Driven:
        def synchronize() -> None:
            self.synchronised.append(self.steps)

        return Driven(
            Batches(self.loader, self.loader.clock, synchronize, per_step=per_step),
            step=self.step,
            noise=lambda: self.noises.pop(0) if self.noises else QUIET,
            compilations=lambda: self.compilations,
        )
