"""What one child process observed while it trained. Raw numbers are stored, statistics derived."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from autotune.intervals import Interval, median_interval


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive training steps between two synchronisations of the device."""

    seconds: float
    samples: int
    wait_seconds: float
    """The part of `seconds` in which the loop waited for the DataLoader."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A timed training run of one configuration in one process."""

    blocks: tuple[Block, ...]
    boundary_seconds: tuple[float, ...]
    """From the end of one epoch to the first batch of the next, one value per boundary seen."""
    epoch_samples: int | None
    """Samples in one epoch; None where no epoch ended and the dataset does not know its length."""
    warmup_step_seconds: tuple[float, ...]
    """Untimed first steps, each synchronised: compilation and cuDNN's search happen here."""
    compile_seconds: float
    """The part of the warm-up that torch.compile reports as its own."""
    start_seconds: float
    """From process start until torch and the workload were imported."""
    build_seconds: float
    """Building model, dataset, optimizer and loader: the user's own code."""
    peak_memory_bytes: int
    """Reserved by the device allocator; on CPU, held by the process and its workers."""
    allocator_retries: int = 0
    """Times the device allocator had to give memory back and try again: the edge of OOM."""

    @property
    def seconds_per_sample(self) -> float:
        """Median over blocks, plus each sample's share of the epoch boundary."""
        return median(self._per_sample()) + self._boundary_share()

    @property
    def samples_per_second(self) -> float:
        """Throughput at the median block, so that one hiccup does not count."""
        return 1 / self.seconds_per_sample

    @property
    def block_rates(self) -> tuple[float, ...]:
        """Throughput of each block, epoch boundaries charged."""
        share = self._boundary_share()
        return tuple(1 / (seconds + share) for seconds in self._per_sample())

    @property
    def samples_per_second_interval(self) -> Interval:
        """95 % interval of `samples_per_second` from the order of the blocks."""
        return median_interval(self.block_rates)

    @property
    def wait_share(self) -> float:
        """Share of the timed seconds in which training waited for data, 0 to 1."""
        return sum(block.wait_seconds for block in self.blocks) / sum(
            block.seconds for block in self.blocks
        )

    @property
    def one_time_seconds(self) -> float:
        """What the first steps cost beyond the steady state: compilation, searches, allocation."""
        if not self.warmup_step_seconds:
            return self.compile_seconds
        steady = min(self.warmup_step_seconds)
        return sum(seconds - steady for seconds in self.warmup_step_seconds)

    def _per_sample(self) -> list[float]:
        return [block.seconds / block.samples for block in self.blocks]

    def _boundary_share(self) -> float:
        if not self.boundary_seconds or not self.epoch_samples:
            return 0.0
        return median(self.boundary_seconds) / self.epoch_samples
