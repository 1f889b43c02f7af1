"""Measures every configuration of a space, once or more, into a table that searches can replay.

What is in the table is not measured again, so that the same command continues. Configurations come
in random order with the baseline in between: a machine that grows slower slows all alike, and runs
of one and the same configuration tell how much processes differ.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from autotune.config import TrainingConfig
from autotune.errors import TooManyLostError, UsageError, WorkloadError
from autotune.job import Diagnose, Gate, Job, Measure, MeasurePlan, Probe, Task
from autotune.outcome import Lost, Measured, Probed, TrialOutcome, as_failure, describe
from autotune.tuning.diagnosis import time_stages
from autotune.tuning.judging.accuracy import AccuracyProber, probe_samples
from autotune.tuning.judging.gates import NUMERICS, GateKeeper
from autotune.tuning.judging.seeds import MOST_SEEDS
from autotune.tuning.running.runner import Runner
from autotune.tuning.running.table import Header, Row, append_answer, probed, start_table
from autotune.tuning.scene import Scene, SearchOptions, sha256_of, survey
from autotune.tuning.storing.opening import open_study
from autotune.tuning.storing.study import TuningStudy
from autotune.version import __version__

_FIRST_RUNS = 3
"""Of the baseline, before anything else: they say how long a probe is."""
_BASELINE_EVERY = 20
_MOST = 20_000
_MOST_LOST_IN_A_ROW = 5
_ALL_SEEDS = tuple(range(MOST_SEEDS))
_TIMING = Measure(MeasurePlan(looks=(6,), precision=0.0))


@dataclass(frozen=True, slots=True)
class Recorded:
    """One more answer is in the table."""

    done: int
    total: int
    """Answers that the whole table will have, unless some are lost."""
    answer: Row


@dataclass
class RecordingRunner:
    """Another runner, whose answers are appended to a table as they come."""

    runner: Runner
    path: Path
    answers: list[Row] = field(default_factory=list)
    lost: int = 0
    """In a row, up to now."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The other runner's answer; one that was lost is none.

        Raises:
            TooManyLostError: several in a row.
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
            self.answers.append(Row(job.task, job.config, outcome, seconds))
            append_answer(self.path, self.answers[-1])
        return outcome


def record(options: SearchOptions, runner: Runner, repeats: int = 1) -> Iterator[Recorded]:
    """Measure the space of `options` into the table `options.out`.

    Raises:
        UsageError: the table is of something else, or the space too large for one.
        WorkloadError: the workload fails with the user's own settings.
    """
    scene = survey(options, runner)
    if scene.space.size > _MOST:
        raise UsageError(
            f"{scene.space.size} configurations are too many to measure all of them; the most is "
            f"{_MOST}. Leave knobs or values out of the search space."
        )
    table = start_table(options.out, header_of(scene))
    recorder = RecordingRunner(runner, options.out, list(table.answers))
    study = open_study("gates", None, scene.space, scene.objective)
    yield from _Recording(scene, recorder, study).run(repeats)


def header_of(scene: Scene) -> Header:
    """What a table of this scene is of."""
    loads = " ".join(f"{load:.2f}" for load in os.getloadavg())
    return Header(
        name=scene.options.study,
        machine=scene.machine,
        workload=scene.facts,
        space=scene.space.domains,
        baseline=scene.baseline.as_dict(),
        memory_limit_bytes=scene.memory_limit_bytes,
        model_sha256=sha256_of(scene.options.model_path),
        about=f"autotune {__version__} record; load of the machine before: {loads}",
    )


@dataclass(frozen=True)
class _Recording:
    """A table in the making."""

    scene: Scene
    recorder: RecordingRunner
    study: TuningStudy
    """In memory: where the keeper of the gates notes what it knows."""

    def run(self, repeats: int) -> Iterator[Recorded]:
        """Everything that the table lacks."""
        own = [self.scene.baseline] * _FIRST_RUNS
        timings = self._missing_timings(repeats)
        probes, gates = self._missing_probes(), self._missing_gates()
        own = own[len(self._timed(self.scene.baseline)) :]
        if not any(isinstance(row.task, Diagnose) for row in self.recorder.answers):
            time_stages(self.scene, self.recorder)
        missing = len(own) + len(timings) + len(probes) + len(gates)
        total = len(self.recorder.answers) + missing
        for config in (*own, *timings):
            yield from self._asked(_TIMING, config, total)
            self._check_baseline()
        keeper = GateKeeper(self.scene, self.recorder, self.study)
        for config in gates:
            before = len(self.recorder.answers)
            keeper.gated(config)
            yield from self._news(before, total)
        for config, seeds in probes:
            yield from self._asked(Probe(self._probe_samples(), seeds), config, total)

    def _asked(self, task: Task, config: TrainingConfig, total: int) -> Iterator[Recorded]:
        before = len(self.recorder.answers)
        folder = self.scene.options.folder / "record" / f"{before:05d}"
        self.recorder.run(self.scene.job(task, config, self._deadline(task)), folder)
        yield from self._news(before, total)

    def _deadline(self, task: Task) -> float:
        """Seconds; a search probes one seed after the other, and each has as long as a trial."""
        seconds = self.scene.options.trial_timeout_seconds
        return seconds * len(task.seeds) if isinstance(task, Probe) else seconds

    def _news(self, before: int, total: int) -> Iterator[Recorded]:
        for number in range(before, len(self.recorder.answers)):
            yield Recorded(number + 1, total, self.recorder.answers[number])

    def _timed(self, config: TrainingConfig) -> list[TrialOutcome]:
        """What became of the timings of a configuration."""
        settings = config.as_dict()
        answers = self.recorder.answers
        return [a.outcome for a in answers if a.task.kind == "measure" and a.config == settings]

    def _check_baseline(self) -> None:
        for outcome in self._timed(self.scene.baseline):
            if not isinstance(outcome, Measured):
                raise WorkloadError(
                    f"{self.scene.options.model_path} fails with your own settings: "
                    f"{describe(as_failure(outcome))}"
                )

    def _missing_timings(self, repeats: int) -> list[TrainingConfig]:
        """In random order, with the baseline after every few."""
        have = Counter(
            TrainingConfig.of(answer.config)
            for answer in self.recorder.answers
            if isinstance(answer.task, Measure)
        )
        wanted: list[TrainingConfig] = []
        for number in range(repeats):
            configs = [c for c in self.scene.space.configurations() if have[c] <= number]
            Random(self.scene.options.seed + number).shuffle(configs)  # noqa: S311
            for place, config in enumerate(configs):
                wanted += [config] if place % _BASELINE_EVERY else [self.scene.baseline, config]
        return wanted

    def _missing_gates(self) -> list[TrainingConfig]:
        """One configuration for each kind of numerics."""
        kinds = {self._numerics(config): config for config in self.scene.space.configurations()}
        have = {
            self._numerics(TrainingConfig.of(answer.config))
            for answer in self.recorder.answers
            if isinstance(answer.task, Gate)
        }
        have.add(self._numerics(self.scene.baseline))
        return [config for numerics, config in kinds.items() if numerics not in have]

    def _numerics(self, config: TrainingConfig) -> tuple[object, ...]:
        return tuple(config[name] for name in NUMERICS)

    def _missing_probes(self) -> list[tuple[TrainingConfig, tuple[int, ...]]]:
        """One configuration for each kind of training that a probe tells, and what seeds it lacks.

        A search may ask for all of them, and invented ones would say who trains well enough.
        """
        prober = AccuracyProber(self.scene, self.recorder, self.study, 0)
        trained = map(prober.trained_as, self.scene.space.configurations())
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
        return [(config, seeds) for config, seeds in missing if seeds]

    def _probe_samples(self) -> int:
        """As many as in a search; where there is a probe already, as many as in that."""
        for answer in self.recorder.answers:
            if isinstance(answer.task, Probe):
                return answer.task.samples
        runs = self._timed(self.scene.baseline)
        rates = [run.measurement.samples_per_second for run in runs if isinstance(run, Measured)]
        return self.scene.options.accuracy_samples or probe_samples(self.scene, median(rates))
