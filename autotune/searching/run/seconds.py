"""Seconds that one process, trial or round takes, from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from autotune.comparison.rounds import PLAN as ROUND
from autotune.comparison.rounds import has_own_host
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.study.finished import FinishedTrial
from autotune.values.measurement import Measurement

# Share of the compile time that is left when the cache is warm. Measured on digits_cnn: 1.1 to
# 1.7 s instead of 4 to 24 s.
_FROM_CACHE = 1 / 4


def process_seconds(run: Measurement) -> float:
    """Return the seconds from the start of the process to the end of its last block.

    Seconds that a warm host paid once for all of its forks do not count.
    """
    return run.start_seconds + run.build_seconds - run.shared_seconds + timed_seconds(run)


def timed_seconds(run: Measurement) -> float:
    """Return the seconds of all steps, including the warm-up, and of the epoch boundaries."""
    return (
        sum(run.warmup_step_seconds)
        + sum(block.seconds for block in run.blocks)
        + sum(run.boundary_seconds)
    )


def trial_seconds(trial: FinishedTrial) -> float:
    """Return the seconds that timing a finished trial took, or until it failed."""
    details = trial.details
    return details.timing_seconds or details.process_seconds or details.seconds or 0.0


def seconds_again(trial: FinishedTrial, finished: Sequence[FinishedTrial]) -> float:
    """Return the seconds of timing a trial once more, with its compiled code in the cache.

    Among the `finished` trials, an earlier one may have filled the cache for it.
    """
    earlier = (one for one in finished if one.number < trial.number)
    if any(compiles_alike(one.config, trial.config) for one in earlier):
        return trial_seconds(trial)
    compiling = trial.details.compile_seconds or 0.0
    return trial_seconds(trial) - (1 - _FROM_CACHE) * compiling


def compiles_alike(one: TrainingConfig, other: TrainingConfig) -> bool:
    """Return whether both compile the same code: equivalent training with as many threads.

    The one that ran first compiled for both, which must not count against it.
    """
    same_threads = one["num_threads"] == other["num_threads"]
    return same_threads and one.quality_key() == other.quality_key()


def in_a_round(run: Measurement | None, seconds: float, warmup_samples: int = 0) -> float:
    """Return the seconds of a timing in a round, estimated from one under another plan.

    Args:
        run: that timing, whose blocks those of a round replace; None if it is not known.
        seconds: seconds of that whole process.
        warmup_samples: samples of the other side's warm-up, since both warm up on as many.
    """
    blocks = [] if run is None else [block.seconds for block in run.blocks]
    more = 0 if run is None else max(0, warmup_samples - run.warmup_samples)
    longer = more / run.samples_per_second if run is not None and more else 0.0
    # A block has at least one step, however slow.
    fewest = ROUND.looks[0] * fmean(blocks) if blocks else 0.0
    warming_up = max(0.0, seconds - sum(blocks)) + min(longer, ROUND.max_seconds)
    return float(warming_up + max(ROUND.max_seconds, fewest))


def round_host_seconds(context: SearchContext) -> float:
    """Return the seconds to start the host of a round of two; 0 if it has no host of its own."""
    return context.host_seconds if has_own_host(context.host_seconds, participants=2) else 0.0
