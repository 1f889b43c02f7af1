"""The recorded tables: each can be read, and a diagnosis leaves nothing out that would have won."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.outcome import Diagnosed
from autotune.space import SearchSpace
from autotune.tuning.diagnosis import Diagnosis, narrowed
from autotune.tuning.running.table import Table, read_table

TABLES = sorted((Path(__file__).parents[2] / "studies" / "tables").glob("*.jsonl.xz"))

MOST_LOST = 0.03
"""Less than two processes of the same settings differ by, in any of the tables."""

each_table = pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)


def rates(table: Table, space: SearchSpace) -> list[float]:
    """Of what ran of a space."""
    return [rate for config in space.configurations() if (rate := table.rate(config)) is not None]


def test_there_are_tables() -> None:
    assert TABLES


@each_table
def test_a_table_holds_its_whole_space(path: Path) -> None:
    table = read_table(path)
    space = SearchSpace(table.header.space)
    assert set(space.configurations()) <= table.timed.keys()
    assert space.size >= 200


@each_table
def test_what_a_diagnosis_leaves_out_would_not_have_won(path: Path) -> None:
    table = read_table(path)
    (stages,) = [row.outcome for row in table.answers if isinstance(row.outcome, Diagnosed)]
    space = SearchSpace(table.header.space)
    largest = max(int(size or 1) for size in space.domains["batch_size"])
    left = narrowed(space, Diagnosis(stages, table.header.machine, table.baseline, largest))
    assert max(rates(table, left)) >= (1 - MOST_LOST) * max(rates(table, space))
