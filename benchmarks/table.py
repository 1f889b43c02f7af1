"""A table of the answers to jobs, against which searches can be replayed.

It is a file of JSON lines, compressed if its name ends in .xz: a header, then one answered job per
line, appended as it comes. `python -m benchmarks.record` writes one, `ReplayRunner` reads it.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import IO, Annotated

import numpy as np
from pydantic import Discriminator, TypeAdapter

from autotune.configuration.job import Measure, Probe, Task
from autotune.configuration.search_space import whole_space
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.process.common.trial_folder import MOST_BYTES
from autotune.study.facts import ALIKE
from autotune.values.errors import UsageError
from autotune.values.machine import Machine
from autotune.values.outcome import (
    Inspected,
    Measured,
    Probed,
    TrialOutcome,
    WorkloadFacts,
)
from autotune.values.text import fault_of
from benchmarks.shrinkage import Array, shrunk

_FORMAT = 1
# With fewer runs of the baseline, the usual deviation of log rates is taken for the table's.
_FEWEST_REPEATS = 3
_USUAL_NOISE = 0.03
# Predicting the rates of more timings would take minutes; their means are used instead.
_MOST_PREDICTED = 2000


@dataclass(frozen=True, slots=True)
class Header:
    """The machine, workload and search space that a table's answers belong to."""

    name: str
    machine: Machine
    workload: WorkloadFacts
    space: Mapping[str, tuple[Value, ...]]
    """Values of every knob."""
    baseline: Mapping[str, Value]
    memory_limit_bytes: int
    model_sha256: str
    """SHA-256 of the model.py that was measured."""
    about: str
    """Origin of the table: command, versions, load of the machine."""
    format: int = _FORMAT


@dataclass(frozen=True, slots=True)
class Row:
    """One job and its outcome."""

    task: Task
    config: Mapping[str, Value]
    outcome: Annotated[TrialOutcome, Discriminator("kind")]
    seconds: float
    """Seconds from the start of the job to its outcome."""


@dataclass(frozen=True)
class Table:
    """A header with all answers."""

    header: Header
    answers: tuple[Row, ...]

    @property
    def inspected(self) -> Inspected:
        """Outcome of an inspection."""
        return Inspected(self.header.machine, self.header.workload)

    @property
    def baseline(self) -> TrainingConfig:
        """Configuration of the user's own settings."""
        return TrainingConfig.of(self.header.baseline)

    @cached_property
    def timed(self) -> Mapping[TrainingConfig, tuple[Row, ...]]:
        """Timings of each configuration, failures included."""
        found: dict[TrainingConfig, tuple[Row, ...]] = {}
        for answer in self.answers:
            if isinstance(answer.task, Measure):
                config = TrainingConfig.of(answer.config)
                found[config] = (*found.get(config, ()), answer)
        return found

    @cached_property
    def probed(self) -> Mapping[str, Row]:
        """Probe with all seeds of each training equivalence, by its key; see `probed`."""
        return probed(self.answers)

    @cached_property
    def untrained(self) -> float | None:
        """Loss of the baseline before training; None without it.

        It is of a probe of no samples, or of a script's first one.
        """
        for row in self.answers:
            if isinstance(row.outcome, Probed):
                if _is_untrained(row):
                    return row.outcome.qualities[0]
                if row.outcome.untrained is not None:
                    return row.outcome.untrained
        return None

    @cached_property
    def timing_seconds(self) -> float:
        """Mean seconds of one timing."""
        return fmean(row.seconds for rows in self.timed.values() for row in rows)

    @cached_property
    def process_noise(self) -> float:
        """Standard deviation of the log rate between processes with the same settings."""
        return _USUAL_NOISE if self._own_noise is None else self._own_noise

    def rate(self, config: TrainingConfig) -> float | None:
        """Return the true rate of `config` in samples/s; None if it was not timed or failed.

        It is the prediction of `shrunk` if the table has runs that show the noise, else the mean.
        """
        found = self._log_rates.get(config)
        return None if found is None else math.exp(found)

    @cached_property
    def noise(self) -> tuple[float, ...]:
        """Deviations of the timings' log rates from the predicted ones, in the recorded order.

        Empty if the table has too few runs that show the noise, or too many timings. Predictions
        follow the timings a little, so the residuals are scaled up to the estimated deviation.
        """
        if not self._tells_noise:
            return ()
        truth, deviation = self._predicted
        left = np.array([rate for _, rate in self._runs]) - truth
        return tuple(map(float, left * max(1.0, deviation / float(left.std() or deviation))))

    @cached_property
    def _log_rates(self) -> Mapping[TrainingConfig, float]:
        if self._tells_noise:
            configs = [config for config, _ in self._runs]
            return dict(zip(configs, map(float, self._predicted[0]), strict=True))
        each: dict[TrainingConfig, list[float]] = {}
        for config, rate in self._runs:
            each.setdefault(config, []).append(rate)
        return {config: fmean(found) for config, found in each.items()}

    @cached_property
    def _predicted(self) -> tuple[Array, float]:
        configs = [config for config, _ in self._runs]
        return shrunk(configs, np.array([rate for _, rate in self._runs]))

    @property
    def _tells_noise(self) -> bool:
        return bool(self._own_noise) and len(self._runs) <= _MOST_PREDICTED

    @cached_property
    def _runs(self) -> list[tuple[TrainingConfig, float]]:
        """Return configuration and log rate of each timing in order, without failed ones.

        All timings of a configuration that ever failed are left out.
        """
        timings = [row for row in self.answers if isinstance(row.task, Measure)]
        configs = [TrainingConfig.of(row.config) for row in timings]
        outcomes = [row.outcome for row in timings]
        pairs = list(zip(configs, outcomes, strict=True))
        failed = {config for config, outcome in pairs if not isinstance(outcome, Measured)}
        return [
            (config, math.log(outcome.measurement.samples_per_second))
            for config, outcome in pairs
            if isinstance(outcome, Measured) and config not in failed
        ]

    @cached_property
    def _own_noise(self) -> float | None:
        """Return the deviation of the baseline's log rates; None if there are too few runs."""
        runs = [rate for config, rate in self._runs if config == self.baseline]
        return stdev(runs) if len(runs) >= _FEWEST_REPEATS else None


def probed(answers: Iterable[Row]) -> dict[str, Row]:
    """Return the probe of each training equivalence by its key, with the seeds of all its rows.

    A failure replaces the qualities of other rows. Probes of no samples are left out.
    """
    found: dict[str, Row] = {}
    for answer in answers:
        if isinstance(answer.task, Probe) and not _is_untrained(answer):
            key = TrainingConfig.of(answer.config).quality_key()
            found[key] = _with_seeds(found[key], answer) if key in found else answer
    return found


def _is_untrained(row: Row) -> bool:
    return isinstance(row.task, Probe) and not row.task.samples


def _with_seeds(before: Row, more: Row) -> Row:
    """Return a probe with the seeds of both; each seed takes as long as in the faster one."""
    if not isinstance(before.outcome, Probed) or not isinstance(before.task, Probe):
        return before
    if not isinstance(more.outcome, Probed) or not isinstance(more.task, Probe):
        return more
    qualities = before.outcome.qualities + more.outcome.qualities
    faster = min((before, more), key=_seconds_of_a_seed)
    seconds = len(qualities) * _seconds_of_a_seed(faster)
    task = replace(before.task, seeds=before.task.seeds + more.task.seeds)
    return Row(task, before.config, Probed(qualities, seconds), seconds)


def _seconds_of_a_seed(probe: Row) -> float:
    assert isinstance(probe.task, Probe)
    return probe.seconds / len(probe.task.seeds)


def write_table(table: Table, path: Path) -> None:
    """Write a whole table to a new file.

    Raises:
        FileExistsError: the file exists.
    """
    with _open(path, "xt") as file:
        file.write(_header().dump_json(table.header).decode() + "\n")
        file.writelines(line_of(answer) for answer in table.answers)


def start_table(path: Path, header: Header) -> Table:
    """Return the table at `path` for appending; write one with only a header if there is none.

    `path` must not be a compressed file.

    Raises:
        UsageError: the file is no table, or a table of something else.
        OSError: it cannot be written.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(Table(header, ()), path)
    table = read_table(path)
    _drop_half_a_line(path)
    mine, its = (_comparable(h) for h in (header, table.header))
    changed = [name for name in mine if mine[name] != its[name]]
    if not math.isclose(header.memory_limit_bytes, table.header.memory_limit_bytes, rel_tol=ALIKE):
        changed.append("memory_limit_bytes")
    if changed:
        raise UsageError(
            f"{path} was recorded with another {', '.join(changed)}. Give another --out."
        )
    return table


def _drop_half_a_line(path: Path) -> None:
    """Cut off an incomplete last line that a crash has left."""
    with path.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def append_answer(path: Path, answer: Row) -> None:
    """Add one line to a table."""
    with _open(path, "at") as file:
        file.write(line_of(answer))


def read_table(path: Path) -> Table:
    """Read a table, without an incomplete last line that a crash has left.

    Raises:
        UsageError: it cannot be read; names the wrong line.
    """
    try:
        with _open(path, "rt") as file:
            lines = _whole_lines(file)
            first = next(lines, None)
            if first is None:
                raise UsageError(f"{path} is no recorded table: it is empty.")
            return Table(_parsed_header(path, first), tuple(_parsed(path, lines)))
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error


def line_of(answer: Row) -> str:
    """Return an answer as one line of JSON."""
    return _answer().dump_json(answer).decode() + "\n"


def _whole_lines(file: IO[str]) -> Iterator[str]:
    """Yield the complete lines.

    At most `MOST_BYTES` of a line are read, so that a small compressed file cannot fill the memory.

    Raises:
        ValueError: a line is longer.
    """
    while (line := file.readline(MOST_BYTES + 1)).endswith("\n"):
        yield line
    if len(line) > MOST_BYTES:
        raise ValueError(f"a line is larger than {MOST_BYTES >> 10} KiB")


def _parsed_header(path: Path, line: str) -> Header:
    try:
        header = _header().validate_json(line)
    except ValueError as error:
        raise UsageError(f"{path}:1 is no header of a table: {fault_of(error)}.") from error
    if header.format > _FORMAT:
        raise UsageError(f"{path} has format {header.format}; this version reads {_FORMAT}.")
    baseline = TrainingConfig.of(header.baseline)
    space = whole_space(header.space, baseline)
    return replace(header, space=space, baseline=baseline.as_dict())


def _parsed(path: Path, lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=2):
        try:
            answer = _answer().validate_json(_with_roundings(line))
            outcome = answer.outcome
            if isinstance(outcome, Measured) and outcome.measurement.nonsense:
                raise ValueError(outcome.measurement.nonsense)
        except ValueError as error:
            raise UsageError(
                f"{path}:{number} is no recorded answer: {fault_of(error)}."
            ) from error
        yield answer


def _with_roundings(line: str) -> str:
    """Return an answer's line, with nulls for what numerics checks did not measure earlier."""
    if '"kind":"gated"' not in line or '"rounding_path_error"' in line:
        return line
    answer = json.loads(line)
    names = ("buffer", "rounding_path", "rounding_reach", "rounding_buffer")
    answer["outcome"] |= {f"{name}_error": None for name in names}
    return json.dumps(answer)


def _comparable(header: Header) -> dict[str, object]:
    known = json.loads(_header().dump_json(header))
    facts = {name: known[name] for name in ("model_sha256", "space", "baseline")}
    return facts | {"machine": header.machine.fingerprint}


def _open(path: Path, mode: str) -> IO[str]:
    if path.suffix == ".xz":
        return lzma.open(path, mode, encoding="utf-8")  # type: ignore[return-value]
    return path.open(mode.replace("t", ""), encoding="utf-8")


@cache
def _header() -> TypeAdapter[Header]:
    return TypeAdapter(Header)


@cache
def _answer() -> TypeAdapter[Row]:
    return TypeAdapter(Row)
