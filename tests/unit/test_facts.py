"""A fact about a study is what its name says, or its line in the journal is refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from autotune.storage.journal import Journal
from autotune.storage.journal_lines import NoteRecord
from autotune.storage.note_types import as_json
from autotune.storage.notes import Note, StudyNotes
from autotune.values.errors import StorageError
from covering import covers
from readers import FACTS, RUN

DRIFT_CHECK = {"trials": 4, "samples_per_second": 101.5}


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
    "anchors": [5, [5], [{"trials": 1}], [{**DRIFT_CHECK, "samples_per_second": -1}]],
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


def test_a_study_reads_each_note_as_what_it_wrote() -> None:
    keys = {note.key: name for name, note in vars(StudyNotes).items() if isinstance(note, Note)}
    study = StudyNotes(FACTS)
    for key in FACTS.keys() & keys.keys():
        assert as_json(getattr(study, keys[key])) == as_json(FACTS[key])
    assert as_json(study.drift_checks("@cuda:1")) == FACTS["anchors@cuda:1"]
    assert keys.keys() - FACTS.keys() == {"constraint_names", "anchors"}
    assert not any(getattr(StudyNotes(), name) for name in keys.values())


@covers("S18")
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
