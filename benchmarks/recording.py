"""Measure every configuration of a space into a table that searches can replay.

A table of a script answers as that of a model.py with its training would: the comparison of its
first steps is the numerics check, and its loss is the held-out one.
Answers in the table are not measured again, so that the same command continues. Configurations come
in random order, so that a drift of the machine affects all alike. The baseline comes in between;
its runs show how much processes differ.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import median

from autotune import __version__
from autotune.accuracy.accuracy_verdict import probe_samples, probe_task
from autotune.accuracy.numerics_verdict import NUMERICS, FirstLossChecker, NumericsChecker
from autotune.configuration.job import Diagnose, Gate, Job, Measure, MeasurePlan, Probe, Task
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import SearchOptions
from autotune.context.script_ways import ScriptTraits
from autotune.context.search_context import SearchContext, sha256_of, survey
from autotune.process.runner import Runner
from autotune.searching.run.diagnosis import time_stages
from autotune.study.study import TuningStudy, open_study
from autotune.values.errors import TooManyLostError, UsageError, WorkloadError
from autotune.values.outcome import (
    Diagnosed,
    Gated,
    Lost,
    Measured,
    Probed,
    TrialOutcome,
    as_failure,
    describe,
)
from autotune.values.statistics import SEED_COUNTS
from benchmarks.table import Header, Row, append_answer, probed, start_table

_FIRST_RUNS = 3
"""Runs of the baseline at the start; they determine the length of a probe."""
_BASELINE_EVERY = 20
_MOST = 20_000
_MOST_LOST_IN_A_ROW = 5
_ALL_SEEDS = tuple(range(SEED_COUNTS[-1]))
_TIMING = Measure(MeasurePlan(block_counts=(6,), precision=0.0))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Event: one more answer is in the table."""

    done: int
    total: int
    """Answers of the complete table, if none is lost."""
    answer: Row


@dataclass
class RecordingRunner:
    """A wrapper of a runner that appends each answer to a table."""

    runner: Runner
    path: Path
    answers: list[Row] = field(default_factory=list)
    lost: int = 0
    """Lost answers in a row until now."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Run the job; append its outcome to the table unless it is lost or has no configuration.

        Raises:
            TooManyLostError: five outcomes in a row were lost.
        """
        start = time.monotonic()
        outcome = self.runner.run(job, folder)
        self.lost = self.lost + 1 if isinstance(outcome, Lost) else 0
        if isinstance(outcome, Lost) and self.lost >= _MOST_LOST_IN_A_ROW:
            raise TooManyLostError(
                f"{self.lost} answers in a row were lost. The last one: {outcome.detail}. "
                "What is in the table stays; the same command continues."
            )
        if job.config is not None and not isinstance(outcome, Lost):
            seconds = round(time.monotonic() - start, 3)
            self.keep(Row(job.task, job.config, outcome, seconds))
        return outcome

    def keep(self, answer: Row) -> None:
        """Append an answer to the table."""
        self.answers.append(answer)
        append_answer(self.path, answer)


def recording(options: SearchOptions, runner: Runner, repeats: int = 1) -> Iterator[Recorded]:
    """Measure the space of `options` into the table `options.study.out`, `repeats` times each.

    Raises:
        UsageError: the table belongs to something else, or the space is too large.
        WorkloadError: the workload fails with the user's own settings.
        TooManyLostError: five outcomes in a row were lost.
    """
    context = survey(options, runner)
    if context.space.size > _MOST:
        raise UsageError(
            f"{context.space.size} configurations are too many to measure all of them; the most is "
            f"{_MOST}. Leave knobs or values out of the search space."
        )
    table = start_table(options.study.out, header_of(context))
    recorder = RecordingRunner(runner, options.study.out, list(table.answers))
    study = open_study("gates", None, context.space, context.objective)
    yield from _Recording(context, recorder, study).run(repeats)


def header_of(context: SearchContext) -> Header:
    """Return the header of a table for this search context."""
    loads = " ".join(f"{load:.2f}" for load in os.getloadavg())
    # A model.py has either an evaluation, of which more is better, or a held-out loss.
    facts = replace(context.facts, has_evaluate=context.judge.higher_is_better)
    return Header(
        name=context.options.study.name,
        machine=context.machine,
        workload=facts,
        space=context.space.domains,
        baseline=context.baseline.as_dict(),
        memory_limit_bytes=context.memory_limit_bytes,
        model_sha256=sha256_of(context.options.workload.model_path),
        about=f"autotune {__version__} record; load of the machine before: {loads}",
    )


@dataclass(frozen=True)
class _Recording:
    """The recording of one table."""

    context: SearchContext
    recorder: RecordingRunner
    study: TuningStudy
    """A study in memory in which the numerics checks store their results."""

    def run(self, repeats: int) -> Iterator[Recorded]:
        """Measure everything that the table lacks."""
        own = [self.context.baseline] * _FIRST_RUNS
        timings = self._missing_timings(repeats)
        probes, gates = self._missing_probes(), self._missing_gates()
        own = own[len(self._timed(self.context.baseline)) :]
        if not any(isinstance(row.task, Diagnose) for row in self.recorder.answers):
            self._time_stages()
        missing = len(own) + len(timings) + len(probes) + len(gates) + self._lacks_untrained()
        total = len(self.recorder.answers) + missing
        for config in (*own, *timings):
            yield from self._asked(_TIMING, config, total)
            self._check_baseline()
        for config in gates:
            before = len(self.recorder.answers)
            self._check_numerics(config)
            yield from self._news(before, total)
        for config, seeds in probes:
            task = probe_task(self.context, self._probe_samples(), seeds)
            is_own = config.quality_key() == self.context.baseline.quality_key()
            asks = self._is_script and is_own and 0 in seeds
            yield from self._asked(replace(task, untrained=asks), config, total)
        if self._lacks_untrained():
            task = probe_task(self.context, 0, (0,))
            yield from self._asked(task, self.context.baseline, total)

    @property
    def _is_script(self) -> bool:
        return isinstance(self.context.traits, ScriptTraits)

    def _time_stages(self) -> None:
        """Record the stages of the baseline; a script's are known since it was observed."""
        stages = time_stages(self.context, self.recorder)
        if self._is_script and isinstance(stages, Diagnosed):
            self._keep(Diagnose(_TIMING.plan, ()), self.context.baseline, stages, time.monotonic())

    def _check_numerics(self, config: TrainingConfig) -> None:
        """Record a numerics check, which of a script is made of several processes."""
        if not self._is_script:
            NumericsChecker(self.context, self.recorder, self.study).gated(config)
            return
        start, runner = time.monotonic(), self.recorder.runner
        found = FirstLossChecker(self.context, runner, self.study).gated(config)
        if isinstance(found, Gated):
            # A script's gradients refuse nothing where its loss judges.
            found = replace(found, gradient_error=0.0)
            self._keep(Gate(self.context.baseline.as_dict()), config, found, start)

    def _keep(
        self, task: Task, config: TrainingConfig, outcome: TrialOutcome, start: float
    ) -> None:
        seconds = round(time.monotonic() - start, 3)
        self.recorder.keep(Row(task, config.as_dict(), outcome, seconds))

    def _lacks_untrained(self) -> bool:
        """Return whether a model.py's quality is a loss, and that before training is lacking."""
        if self._is_script:
            return False
        probes = [row.task for row in self.recorder.answers if isinstance(row.task, Probe)]
        return not self.context.judge.higher_is_better and all(task.samples for task in probes)

    def _asked(self, task: Task, config: TrainingConfig, total: int) -> Iterator[Recorded]:
        before = len(self.recorder.answers)
        folder = self.context.options.study.folder / "record" / f"{before:05d}"
        self.recorder.run(self.context.job(task, config, self._deadline(task)), folder)
        yield from self._news(before, total)

    def _deadline(self, task: Task) -> float:
        """Return the deadline in seconds; each seed of a probe has as long as a trial."""
        seconds = self.context.options.budget.trial_timeout_seconds
        return seconds * len(task.seeds) if isinstance(task, Probe) else seconds

    def _news(self, before: int, total: int) -> Iterator[Recorded]:
        for number in range(before, len(self.recorder.answers)):
            yield Recorded(number + 1, total, self.recorder.answers[number])

    def _timed(self, config: TrainingConfig) -> list[TrialOutcome]:
        """Return the outcomes of the timings of a configuration."""
        settings = config.as_dict()
        answers = self.recorder.answers
        return [a.outcome for a in answers if a.task.kind == "measure" and a.config == settings]

    def _check_baseline(self) -> None:
        for outcome in self._timed(self.context.baseline):
            if not isinstance(outcome, Measured):
                raise WorkloadError(
                    f"{self.context.options.workload.model_path} fails with your own settings: "
                    f"{describe(as_failure(outcome))}"
                )

    def _missing_timings(self, repeats: int) -> list[TrainingConfig]:
        """Return the configurations to time, in random order with the baseline in between."""
        have = Counter(
            TrainingConfig.of(answer.config)
            for answer in self.recorder.answers
            if isinstance(answer.task, Measure)
        )
        wanted: list[TrainingConfig] = []
        for number in range(repeats):
            configs = [c for c in self.context.space.configurations() if have[c] <= number]
            Random(self.context.options.sampling.seed + number).shuffle(configs)
            for place, config in enumerate(configs):
                wanted += [config] if place % _BASELINE_EVERY else [self.context.baseline, config]
        return wanted

    def _missing_gates(self) -> list[TrainingConfig]:
        """Return one configuration for each combination of numerics that lacks its check."""
        kinds = {self._numerics(config): config for config in self.context.space.configurations()}
        have = {
            self._numerics(TrainingConfig.of(answer.config))
            for answer in self.recorder.answers
            if isinstance(answer.task, Gate)
        }
        have.add(self._numerics(self.context.baseline))
        return [config for numerics, config in kinds.items() if numerics not in have]

    def _numerics(self, config: TrainingConfig) -> tuple[object, ...]:
        return tuple(config[name] for name in NUMERICS)

    def _missing_probes(self) -> list[tuple[TrainingConfig, tuple[int, ...]]]:
        """Return a configuration for each training equivalence, with the seeds that it lacks.

        All seeds are recorded. A search may ask for any of them, and replayed values of missing
        seeds would decide which configurations are accurate enough.
        """
        checker = NumericsChecker(self.context, self.recorder, self.study)
        trained = map(checker.trained_as, self.context.space.configurations())
        kinds = {config.quality_key(): config for config in trained}
        have = {
            key: row.task.seeds if isinstance(row.outcome, Probed) else _ALL_SEEDS
            for key, row in probed(self.recorder.answers).items()
            if isinstance(row.task, Probe)
        }
        missing = [
            (config, tuple(seed for seed in _ALL_SEEDS if seed not in have.get(key, ())))
            for key, config in kinds.items()
        ]
        if self._is_script:  # each of its seeds is a process
            return [(config, (seed,)) for config, seeds in missing for seed in seeds]
        return [(config, seeds) for config, seeds in missing if seeds]

    def _probe_samples(self) -> int:
        """Return the samples of a probe: as in the table's first probe, else as in a search."""
        for answer in self.recorder.answers:
            if isinstance(answer.task, Probe) and answer.task.samples:
                return answer.task.samples
        runs = self._timed(self.context.baseline)
        rates = [run.measurement.samples_per_second for run in runs if isinstance(run, Measured)]
        return self.context.options.accuracy.samples or probe_samples(self.context, median(rates))
