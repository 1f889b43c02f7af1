"""A runner that answers from a recorded table instead of measuring.

Search strategies can only be compared over many searches. Against a table, a search takes as long
as its sampler computes. Timings vary as in the table: blocks are drawn anew from those of the
configuration, and each process deviates as a recorded one did. Deviations are used in their
recorded order from a random place on, because neighbours share a drift of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import assert_never

from autotune.configuration.job import (
    CountFlops,
    Diagnose,
    Gate,
    Inspect,
    Job,
    Measure,
    MeasurePlan,
    Observe,
    Probe,
    TakeFirstSteps,
)
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Value
from autotune.searching.run.time_budget import saved_by_cache
from autotune.values.measurement import Block, Measurement
from autotune.values.outcome import Lost, Measured, Probed, TrialOutcome
from benchmarks.table import Row, Table

_NUMERICS = tuple(knob.name for knob in ALL_KNOBS if knob.effect == "numerics")


class ReplayRunner:
    """A runner that answers a job with a recorded outcome of its configuration."""

    def __init__(self, table: Table, seed: int = 0, *, caches: bool = False) -> None:
        """Take a table.

        Args:
            table: the recorded or synthetic answers.
            seed: seed of what is drawn from them.
            caches: whether code that was compiled once is compiled faster the next time. Where it
                is not, the seconds of compiled configurations are those of an empty cache.
        """
        self._table = table
        self._caches = caches
        self._compiled: set[tuple[str, Value]] = set()
        self._random = Random(seed)
        self._place = self._random.randrange(max(1, len(table.noise)))
        self._timed_until = 0.0
        self.seconds = 0.0
        """Seconds that measuring all answers so far would have taken."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:  # noqa: ARG002 (nothing to keep)
        """Return a recorded outcome of `job`; `Lost` if there is none. `folder` stays empty."""
        if isinstance(job.task, Inspect):
            return self._table.inspected
        config = TrainingConfig.of(job.config or {})
        answer = self._answer(job, config)
        if answer is None:
            return Lost(f"the table {self._table.header.name} holds no {job.task.kind} of this")
        self.seconds += answer.seconds
        return answer.outcome

    def _answer(self, job: Job, config: TrainingConfig) -> Row | None:
        rows = self._table.answers
        match job.task:
            case Measure(plan):
                return self._timed(config, plan)
            case Probe():
                return self._probed(config, job.task)
            case Gate():
                return self.gate_of(config)
            case Diagnose():
                return next((row for row in rows if isinstance(row.task, Diagnose)), None)
            case CountFlops() | Inspect() | Observe() | TakeFirstSteps():
                return None
            case _:
                assert_never(job.task)

    def _timed(self, config: TrainingConfig, plan: MeasurePlan) -> Row | None:
        recorded = self.timings_of(config)
        if not recorded:
            return None
        answer = self._from_cache(self._random.choice(recorded), config)
        if not isinstance(answer.outcome, Measured):
            return answer
        run = answer.outcome.measurement
        # Recorded processes differ from the mean already: that noise must not count twice.
        apart = run.samples_per_second / (self.rate_of(config) or run.samples_per_second)
        again = self._again(run, plan.block_counts[0], apart)
        seconds = answer.seconds - sum(_saved(block, config, plan) for block in run.blocks)
        return replace(answer, outcome=Measured(again), seconds=seconds)

    def _from_cache(self, answer: Row, config: TrainingConfig) -> Row:
        """Return a timing as the compiler's cache makes it: code is compiled once.

        Later processes with the same code take fewer seconds to compile.
        """
        if not self._caches or not isinstance(answer.outcome, Measured):
            return answer
        run, code = answer.outcome.measurement, (config.quality_key(), config["num_threads"])
        saved = saved_by_cache(run.compile_seconds) if code in self._compiled else 0.0
        self._compiled.add(code)
        first, *others = run.warmup_step_seconds
        quicker = replace(
            run,
            compile_seconds=run.compile_seconds - saved,
            warmup_step_seconds=(first - saved, *others),
        )
        return replace(answer, outcome=Measured(quicker), seconds=answer.seconds - saved)

    def _again(self, run: Measurement, blocks: int, apart: float) -> Measurement:
        """Draw a new process with the same settings; the recorded one was `apart` times as fast."""
        slower = apart * math.exp(self._noise())
        drawn = self._random.choices(run.telling_blocks, k=blocks)
        return replace(run, blocks=tuple(_slowed(block, slower) for block in drawn))

    def _noise(self) -> float:
        """Return the deviation of the next timing's log seconds.

        The place in the recorded deviations advances by the time since the last timing.
        """
        recorded = self._table.noise
        if not recorded:
            return self._random.gauss(0.0, self._table.process_noise)
        since = (self.seconds - self._timed_until) / self._table.timing_seconds
        self._place = (self._place + max(1, round(since))) % len(recorded)
        self._timed_until = self.seconds
        return -recorded[self._place]

    def _probed(self, config: TrainingConfig, task: Probe) -> Row | None:
        """Return the qualities of the task's seeds; see `_quality` for seeds not recorded."""
        known = self.probe_of(config)
        if known is None or not isinstance(known.outcome, Probed):
            return known
        assert isinstance(known.task, Probe)
        qualities = known.outcome.qualities
        drawn = tuple(_quality(qualities, seed) for seed in task.seeds)
        share = min(1.0, task.samples / known.task.samples)
        seconds = share * known.seconds * len(drawn) / len(qualities)
        untrained = self._table.untrained if task.untrained else None
        return replace(known, outcome=Probed(drawn, seconds, untrained), seconds=seconds)

    def timings_of(self, config: TrainingConfig) -> Sequence[Row]:
        """Return the recorded timings of a configuration."""
        return self._table.timed.get(config, ())

    def rate_of(self, config: TrainingConfig) -> float | None:
        """Return the true rate of a configuration in samples/s; None if it is not known."""
        return self._table.rate(config)

    def probe_of(self, config: TrainingConfig) -> Row | None:
        """Return the recorded probe of equivalent training, with all seeds."""
        return self._table.probed.get(config.quality_key())

    def gate_of(self, config: TrainingConfig) -> Row | None:
        """Return the recorded numerics check of a configuration."""
        return self._gates.get(_numerics(config))

    @cached_property
    def _gates(self) -> dict[tuple[Value, ...], Row]:
        gates = (answer for answer in self._table.answers if isinstance(answer.task, Gate))
        return {_numerics(TrainingConfig.of(answer.config)): answer for answer in gates}


def _quality(recorded: tuple[float, ...], seed: int) -> float:
    """Return a seed's quality, drawn from a normal distribution if it is not recorded.

    Mean and spread are those of the recorded seeds. A seed has the same quality each time.
    """
    if seed < len(recorded):
        return recorded[seed]
    spread = stdev(recorded) if len(recorded) > 1 else 0.0
    return fmean(recorded) + spread * Random(f"{seed} {recorded}").gauss()


def _saved(block: Block, config: TrainingConfig, plan: MeasurePlan) -> float:
    """Return the seconds by which a block of this plan is shorter than the recorded one.

    Blocks have whole steps, in a multiple of the workers.
    """
    steps = max(1, block.samples // int(config["batch_size"] or 1))
    workers = max(1, int(config["num_workers"] or 0))
    wanted = math.ceil(plan.block_seconds / (block.seconds / steps))
    wanted = math.ceil(wanted / workers) * workers
    return block.seconds * (1 - min(wanted, steps) / steps)


def _numerics(config: TrainingConfig) -> tuple[Value, ...]:
    return tuple(config[name] for name in _NUMERICS)


def _slowed(block: Block, factor: float) -> Block:
    wait = block.wait_seconds * factor
    return replace(block, seconds=block.seconds * factor, wait_seconds=wait)
