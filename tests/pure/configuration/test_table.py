"""Tables of answers: what is written is read back, and what is wrong is said."""

import math
from pathlib import Path

import pytest

from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.search_space import whole_space
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Crashed, Measured
from benchmarks.replay import ReplayRunner
from benchmarks.table import Header, Row, Table, read_table, start_table, write_table
from covering import covers
from factories import IMAGE_FACTS, cpu_machine, measurement

BASELINE = TrainingConfig.of({"batch_size": 8})
LARGER = TrainingConfig.of({"batch_size": 16})


def header():
    return Header(
        name="digits",
        machine=cpu_machine(),
        workload=IMAGE_FACTS,
        space=whole_space({"batch_size": (8, 16)}, BASELINE),
        baseline=BASELINE.as_dict(),
        memory_limit_bytes=1 << 30,
        model_sha256="0" * 64,
        about="made for a test",
    )


def timed(config, outcome):
    return Row(Measure(MeasurePlan()), config.as_dict(), outcome, 1.5)


def rated(config, rate):
    return timed(config, Measured(measurement(rate)))


@pytest.mark.parametrize("name", ["table.jsonl", "table.jsonl.xz"])
def test_a_written_table_is_read_back(tmp_path, name):
    table = Table(header(), (rated(BASELINE, 100.0), timed(LARGER, Crashed("killed by SIGSEGV"))))
    write_table(table, tmp_path / name)
    assert read_table(tmp_path / name) == table


@covers("S4")
def test_a_table_cut_off_at_any_byte_of_its_last_line_keeps_all_the_others(tmp_path):
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


def test_a_rate_is_drawn_towards_what_others_tell_where_the_table_tells_its_noise():
    own = [rated(BASELINE, rate) for rate in (80.0, 90.0, 100.0, 110.0, 120.0)]
    settings = [BASELINE.replace(num_workers=workers) for workers in range(1, 9)]
    others = [rated(config, 100.0) for config in settings[:-1]]
    lucky = settings[-1]
    table = Table(header(), (*own, *others, rated(lucky, 140.0)))
    rate = table.rate(lucky)
    assert rate is not None
    assert 100.0 < rate < 130.0


def test_timings_are_replayed_as_much_off_as_the_recorded_ones_were_in_their_order():
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
