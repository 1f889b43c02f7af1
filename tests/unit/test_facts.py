"""A fact about a study is what its name says, or its line in the journal is refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from autotune.errors import StorageError
from autotune.tuning.storing.journal import Journal, NoteRecord
from readers import FACTS, RUN

ANCHOR = {"trials": 4, "samples_per_second": 101.5}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def noted(name: str, fact: object) -> str:
    """A line with this fact."""
    fields = {"schema_version": 1, "study": "s", "record": asdict(NoteRecord(name, fact))}
    return json.dumps(fields)


def names_in(journal: Journal) -> list[str]:
    with journal.reading() as lines:
        return [line.record.name for line in lines if isinstance(line.record, NoteRecord)]


WRONG_FACTS = {
    "identity": [{"space": {"batch_size": 8}}, {"memory_limit_bytes": "much"}, "mine"],
    "start_seconds": ["soon", -1.0, None, [2.0]],
    "baseline_runs": [[], [{}], [{**RUN, "blocks": []}], {"0": RUN}],
    "probe_seconds": [-1.0, "long"],
    "probe_samples": [-1, 1.5, "512x", None],
    "qualities": [[0.5], {"a": 0.5}, {"a": ["good"]}],
    "margins": [[0.5], {"a": "good"}, {"a": None}],
    "gates": [{"a": 1}, ["a"], None],
    "anchors": [5, [5], [{"trials": 1}], [{**ANCHOR, "samples_per_second": -1}]],
    "anchors@cuda:1": ["fast"],
    "phase_seconds": [9.0, {"accuracy": "long"}],
    "rulings": [{"a": {"margin": 0.0, "reason": "worse"}}, {"a": {"margin": 0.1}}, ["a"]],
    "diagnosis": [{}, [], {"batch_size": "eight"}],
    "timed_again": [[1.0], {"4": 101.5}, {"4": [-1.0]}],
    "confirmation": [{"seconds": 1.0}, 5],
    "answer": [{"trials": 1}, {"trials": 1, "best": {}}, {"trials": "x", "best": {}}],
    "workers": [{"options": [], "trials": 5}, {"options": {}}],
}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_of_a_search_is_read_back(name: str, journal: Journal) -> None:
    with journal.writing("s", NoteRecord(name, FACTS[name])):
        pass
    with journal.reading() as (line,):
        assert line.record == NoteRecord(name, json.loads(json.dumps(FACTS[name])))


@pytest.mark.parametrize(
    ("name", "fact"), [(name, fact) for name, facts in WRONG_FACTS.items() for fact in facts]
)
def test_a_fact_that_is_something_else_is_refused_until_it_is_repaired(
    name: str, fact: object, journal: Journal
) -> None:
    with journal.writing("s", NoteRecord("colour", "blue")):
        pass
    with journal.path.open("a") as file:
        file.write(f"{noted(name, fact)}\n")
    with pytest.raises(StorageError, match=r"line 2 is not readable.*autotune repair"):
        names_in(journal)
    assert journal.mend() == 1
    assert names_in(journal) == ["colour"]
