"""Tables of answers: what is written is read back, and what is wrong is said."""

import pytest

from autotune.configuration.job import Measure, MeasurePlan
from autotune.configuration.search_space import whole_space
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Crashed, Measured
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
