"""The tables that searches are replayed against, and what a diagnosis leaves out of each.

Of the recorded ones, and of the generated ones of benchmarks/synthetic.py, whose truth is known.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.searching.run.diagnosis import Diagnosis, most_speedup, narrowed
from autotune.values.outcome import Diagnosed, Measured
from benchmarks import search as replays
from benchmarks import synthetic, synthetic_tables
from benchmarks.table import Table, read_table

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "studies" / "tables").glob("*.jsonl.xz"))

SYNTHETIC = {world.__name__: world for world in (*synthetic.TUNED_ON, *synthetic.HELD_OUT)}

LEFT_OUT = {
    "char_transformer": {"num_workers"},
    "language_compute": {"num_workers", "pin_memory"},
    "fine_tuning": {"num_workers", "pin_memory"},
    "segmentation": {"num_workers"},
}
"""Knobs that lose values to a diagnosis, by table; those of the others lose none."""

MOST_LOST = 0.02
"""By which processes of the same settings differ at least, in recorded and generated tables."""

each_recorded = pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)


@pytest.fixture(scope="module", params=[*replays.recorded_tables(), *SYNTHETIC])
def table(request: pytest.FixtureRequest) -> Table:
    """Each recorded table, and each generated one."""
    if request.param in SYNTHETIC:
        made: Table = synthetic_tables.table_of(SYNTHETIC[request.param]())
        return made
    return read_table(ROOT / "studies" / "tables" / f"{request.param}.jsonl.xz")


def left_of(table: Table) -> SearchSpace:
    """The space of a table without what a search would leave out."""
    (stages,) = [row.outcome for row in table.answers if isinstance(row.outcome, Diagnosed)]
    own = [row.outcome for row in table.timed[table.baseline]]
    reached = median(o.measurement.samples_per_second for o in own if isinstance(o, Measured))
    space = SearchSpace(table.header.space)
    largest = max(int(size or 1) for size in space.domains["batch_size"])
    machine = table.header.machine
    of = Diagnosis(stages, machine, table.baseline, largest, reached)
    return narrowed(space, replace(of, most_speedup=most_speedup(space, machine)))


def test_there_are_tables() -> None:
    assert TABLES


@each_recorded
def test_a_table_holds_its_whole_space(path: Path) -> None:
    table = read_table(path)
    space = SearchSpace(table.header.space)
    assert set(space.configurations()) <= table.timed.keys()
    assert space.size >= 60


def test_a_diagnosis_leaves_out_what_cannot_matter(table: Table) -> None:
    left = left_of(table).domains
    shorter = {knob for knob, values in table.header.space.items() if len(left[knob]) < len(values)}
    assert shorter == LEFT_OUT.get(table.header.name, set())


def test_values_that_a_diagnosis_leaves_out_would_not_have_won(table: Table) -> None:
    """Neither the fastest that ran, nor the fastest that fits and may be trained."""
    assert table.process_noise >= MOST_LOST
    left = set(left_of(table).configurations())
    if left >= set(SearchSpace(table.header.space).configurations()):
        return  # nothing can be lost, and what is true of a table takes seconds to find out
    truth = replays.truth_of(table.header.name)
    ran = {config: rate for config in table.timed if (rate := truth.table.rate(config)) is not None}
    for rates in (ran, truth.rates):
        of_left = [rate for config, rate in rates.items() if config in left]
        assert max(of_left) >= (1 - MOST_LOST) * max(rates.values())
