"""Write the trials of a study for TensorBoard: a run for each, with its settings and numbers.

The package tensorboard writes the files itself, so that TensorFlow and torch are not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.configuration.training_config import with_own
from autotune.knobs import KNOBS
from autotune.knobs.base import Value, spelled
from autotune.report.data import ReportData
from autotune.study.finished import FinishedTrial

_SUFFIX = ".autotune"
_DETAILS = (
    "samples_per_second",
    "tokens_per_second",
    "joules_per_sample",
    "peak_memory_bytes",
    "quality",
    "compile_seconds",
    "wait_share",
)
_RATIO, _BLOCKS = "ratio_to_baseline", "samples_per_second_of_blocks"


def own_files(folder: Path) -> list[Path]:
    """Return the files that an earlier report wrote into a folder."""
    return sorted(folder.rglob(f"events.out.tfevents.*{_SUFFIX}"))


def write_events(data: ReportData, folder: Path) -> None:
    """Write a run for each finished trial, and one for the search, into a folder.

    Files of an earlier report are replaced, all others stay.

    Raises:
        OSError: no space or no permission.
    """
    from tensorboard.plugins.hparams import summary_v2 as hparams  # `api` imports TensorFlow

    for path in own_files(folder):
        path.unlink()
    settings = _settings(data.trials)
    with _run(folder) as search:
        names = list(dict.fromkeys(name for trial in data.trials for name in _metrics(data, trial)))
        columns = [hparams.HParam(name) for name in next(iter(settings.values()), {})]
        search.add(hparams.hparams_config_pb(columns, [hparams.Metric(name) for name in names]))
        for trial in data.trials:
            if (ratio := data.ratio(trial)) is not None:
                search.scalar(_RATIO, ratio, trial.number)
    for trial in data.trials:
        with _run(folder / f"trial-{trial.number:04d}") as run:
            name = f"{data.archive.name} {trial.number}"
            run.add(hparams.hparams_pb(settings[trial.number], trial_id=name))
            for metric, value in _metrics(data, trial).items():
                run.scalar(metric, value, 0)
            timed = trial.details.measurement
            for step, rate in enumerate(timed.block_rates if timed is not None else ()):
                run.scalar(_BLOCKS, rate, step)


def _metrics(data: ReportData, trial: FinishedTrial) -> dict[str, float]:
    """Return the numbers of a trial that are known."""
    numbers = {
        _RATIO: data.ratio(trial),
        **{name: getattr(trial.details, name) for name in _DETAILS},
        **{f"{name}_margin": margin for name, margin in trial.verdict.margins.items()},
    }
    return {name: float(number) for name, number in numbers.items() if number is not None}


def _settings(trials: tuple[FinishedTrial, ...]) -> dict[int, dict[str, Value]]:
    """Return the settings of each trial that differ between trials.

    TensorBoard takes one kind of value in a column: numbers stay where there are only numbers.
    """
    found: dict[int, dict[str, Value]] = {trial.number: {} for trial in trials}
    for name in with_own(KNOBS, (trial.config for trial in trials)):
        values = {trial.number: trial.config[name] for trial in trials}
        kinds = set(map(type, values.values()))
        is_plain = kinds in ({int}, {bool})
        if len(set(map(spelled, values.values()))) > 1:
            for number, value in values.items():
                found[number][name] = value if is_plain else spelled(value)
    return found


class _Run:
    """One run of TensorBoard: a folder with a file of events."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._now = datetime.now(UTC).timestamp()

    def scalar(self, name: str, value: float, step: int) -> None:
        """Add a number at a step."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self.add(Summary(value=[Summary.Value(tag=name, simple_value=value)]), step)

    def add(self, summary: Any, step: int = 0) -> None:
        """Add a summary of TensorBoard's."""
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=self._now, step=step, summary=summary))


@contextmanager
def _run(folder: Path) -> Iterator[_Run]:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder), filename_suffix=_SUFFIX)
    try:
        yield _Run(writer)
    finally:
        writer.close()
