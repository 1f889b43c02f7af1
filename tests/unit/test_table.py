"""Tables of answers: what is written is read back, and what is wrong is said."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.search_space import whole_space
from autotune.configuration.training_config import TrainingConfig
from autotune.values.errors import UsageError
from autotune.values.outcome import Crashed, Measured, TrialOutcome
from benchmarks.replay import ReplayRunner
from benchmarks.table import (
    Header,
    Row,
    Table,
    append_answer,
    read_table,
    start_table,
    write_table,
)
from covering import covers
from factories import IMAGE_FACTS, cpu_machine, measurement

BASELINE = TrainingConfig.of({"batch_size": 8})
LARGER = TrainingConfig.of({"batch_size": 16})


def header(limit: int = 1 << 30) -> Header:
    return Header(
        name="digits",
        machine=cpu_machine(),
        workload=IMAGE_FACTS,
        space=whole_space({"batch_size": (8, 16)}, BASELINE),
        baseline=BASELINE.as_dict(),
        memory_limit_bytes=limit,
        model_sha256="0" * 64,
        about="made for a test",
    )


def timed(config: TrainingConfig, outcome: TrialOutcome) -> Row:
    return Row(Measure(MeasurePlan()), config.as_dict(), outcome, 1.5)


def rated(config: TrainingConfig, rate: float) -> Row:
    return timed(config, Measured(measurement(rate)))


@pytest.mark.parametrize("name", ["table.jsonl", "table.jsonl.xz"])
def test_a_written_table_is_read_back(tmp_path: Path, name: str) -> None:
    table = Table(header(), (rated(BASELINE, 100.0), timed(LARGER, Crashed("killed by SIGSEGV"))))
    write_table(table, tmp_path / name)
    assert read_table(tmp_path / name) == table


def test_an_answer_is_there_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    start_table(path, header())
    append_answer(path, rated(BASELINE, 100.0))
    assert read_table(path).answers == (rated(BASELINE, 100.0),)
    assert start_table(path, header()).answers == (rated(BASELINE, 100.0),)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    write_table(Table(header(), (rated(BASELINE, 100.0), rated(LARGER, 150.0))), path)
    path.write_text(path.read_text()[:-20])
    assert read_table(path).answers == (rated(BASELINE, 100.0),)


@covers("S4")
def test_a_table_cut_off_at_any_byte_of_its_last_line_keeps_all_the_others(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    first, second = (timed(config, Crashed("aborted")) for config in (BASELINE, LARGER))
    write_table(Table(header(), (first, second)), path)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for length in range(last, len(whole)):
        path.write_bytes(whole[:length])
        assert read_table(path).answers == (first,)
    assert start_table(path, header()).answers == (first,)
    assert path.read_bytes() == whole[:last]


@pytest.mark.parametrize(
    ("old", "new"),
    [('"seconds":1.5', '"seconds":NaN'), ("1.5}", "1e999}"), ('"seconds":0.32', '"seconds":-0.32')],
)
def test_a_time_that_no_clock_can_have_shown_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "table.jsonl"
    write_table(Table(header(), (rated(BASELINE, 100.0),)), path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=":2 is no recorded answer"):
        read_table(path)


def test_a_recording_goes_on_behind_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    write_table(Table(header(), (rated(BASELINE, 100.0), rated(LARGER, 150.0))), path)
    path.write_text(path.read_text()[:-20])
    start_table(path, header())
    append_answer(path, rated(LARGER, 150.0))
    assert read_table(path).answers == (rated(BASELINE, 100.0), rated(LARGER, 150.0))


def test_a_table_of_something_else_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    start_table(path, header())
    with pytest.raises(UsageError, match="another memory_limit_bytes"):
        start_table(path, header(limit=1 << 31))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"{}\n", ":1 is no header"),
        (b"\xff\xfe\n", "cannot be read"),
        (b'{"format": 2}\n', ":1 is no header"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "table.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        read_table(path)


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    write_table(Table(header(), (rated(BASELINE, 100.0),)), path)
    path.write_text(path.read_text() + '{"task": 3}\n' + "{}\n")
    with pytest.raises(UsageError, match=":3 is no recorded answer"):
        read_table(path)


def test_a_packed_table_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl.xz"
    write_table(Table(header(), (rated(BASELINE, 100.0),)), path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UsageError, match="cannot be read"):
        read_table(path)


def test_the_rate_of_a_configuration_is_the_mean_of_its_runs_on_a_log_scale() -> None:
    table = Table(header(), (rated(BASELINE, 100.0), rated(BASELINE, 400.0)))
    assert table.rate(BASELINE) == pytest.approx(200.0)
    assert table.rate(LARGER) is None


def test_a_configuration_that_failed_once_has_no_rate() -> None:
    table = Table(header(), (rated(LARGER, 100.0), timed(LARGER, Crashed("killed"))))
    assert table.rate(LARGER) is None


def test_the_baselines_runs_tell_how_much_processes_differ() -> None:
    table = Table(header(), tuple(rated(BASELINE, rate) for rate in (90.0, 100.0, 110.0)))
    assert table.process_noise == pytest.approx(0.1, rel=0.01)


def test_a_rate_is_drawn_towards_what_others_tell_where_the_table_tells_its_noise() -> None:
    own = [rated(BASELINE, rate) for rate in (80.0, 90.0, 100.0, 110.0, 120.0)]
    settings = [BASELINE.replace(num_workers=workers) for workers in range(1, 9)]
    others = [rated(config, 100.0) for config in settings[:-1]]
    lucky = settings[-1]
    table = Table(header(), (*own, *others, rated(lucky, 140.0)))
    rate = table.rate(lucky)
    assert rate is not None
    assert 100.0 < rate < 130.0


def test_rates_are_what_was_timed_if_too_few_runs_tell_the_noise() -> None:
    table = Table(header(), (rated(BASELINE, 100.0), rated(LARGER, 140.0)))
    assert table.rate(LARGER) == pytest.approx(140.0)


def test_timings_are_replayed_as_much_off_as_the_recorded_ones_were_in_their_order() -> None:
    rates = [80.0, 90.0, 100.0, 110.0, 120.0]
    table = Table(header(), tuple(rated(BASELINE, rate) for rate in rates))
    truth = table.rate(BASELINE)
    assert truth is not None
    runner = ReplayRunner(table, seed=3)
    job = Job(Measure(MeasurePlan()), "cpu", config=BASELINE.as_dict())
    outcomes = [runner.run(job, Path()) for _ in range(10)]
    replayed = [o.measurement.samples_per_second for o in outcomes if isinstance(o, Measured)]
    off = [math.log(rate / truth) for rate in rates]
    first = min(range(5), key=lambda place: abs(rates[place] - replayed[0]))
    scale = [math.log(replayed[n] / truth) / off[(first + n) % 5] for n in range(10)]
    assert scale == pytest.approx([scale[0]] * 10)
    assert scale[0] >= 1, "a prediction follows the timings a little"
