"""A fact about a study is what its name says, or its line in the journal is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.storage.journal import Journal
from autotune.storage.notes import Note, StudyNotes
from autotune.values.errors import StorageError
from covering import covers
from readers import FACTS, RUN
from study_factories import note, study_of

DRIFT_CHECK = {"trials": 4, "samples_per_second": 101.5}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def notes_in(journal: Journal) -> list[tuple[str, object]]:
    with journal.reading() as lines:
        return [(line.record.name, line.record.fact) for line in lines]


WRONG_FACTS = {
    "identity": [{"space": {"batch_size": 8}}, {"memory_limit_bytes": "much"}, "mine"],
    "reference": [{"batch_size": [4]}, 4],
    "start_seconds": ["soon", -1.0, None, [2.0]],
    "baseline_runs": [[], [{}], [{**RUN, "blocks": []}], {"0": RUN}],
    "seed_seconds": [-1.0, "long"],
    "probe_samples": [-1, 1.5, "512x", None],
    "qualities": [[0.5], {"a": 0.5}, {"a": ["good"]}],
    "margins": [[0.5], {"a": "good"}, {"a": None}],
    "numerics_checks": [{"a": 1}, ["a"], None],
    "first_drift_checks": [5, [5], [{"trials": 1}], [{**DRIFT_CHECK, "samples_per_second": -1}]],
    "first_drift_checks@cuda:1": ["fast"],
    "phase_seconds": [9.0, {"accuracy": "long"}],
    "revocations": [{"a": {"margin": 0.0, "reason": "worse"}}, {"a": {"margin": 0.1}}, ["a"]],
    "diagnosis": [{}, [], {"batch_size": "eight"}],
    "re_timings": [[1.0], {"4": 101.5}, {"4": [-1.0]}],
    "seconds_again": [7.5, {"4": [7.5]}, {"4": -1.0}],
    "confirmation": [{"seconds": 1.0}, 5],
    "answer": [{"trials": 1}, {"trials": 1, "best": {}}, {"trials": "x", "best": {}}],
    "workers": [{"options": [], "trials": 5}, {"options": {}}],
}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_of_a_search_is_read_back(name: str, journal: Journal) -> None:
    note(journal.path.parent, name, FACTS[name])
    assert notes_in(journal) == [(name, json.loads(json.dumps(FACTS[name])))]


def test_a_study_reads_each_note_as_what_it_wrote(nine: SearchSpace) -> None:
    names = {name for name, one in vars(StudyNotes).items() if isinstance(one, Note)}
    read, notes = StudyNotes(FACTS), study_of(nine).notes
    for name in FACTS.keys() & names:
        setattr(notes, name, getattr(read, name))
    notes.add_drift_check("@cuda:1", *read.drift_checks("@cuda:1"))
    written = {name: notes.attributes[name] for name in FACTS.keys() - {"colour"}}
    assert written == json.loads(json.dumps({name: FACTS[name] for name in written}))
    assert names - FACTS.keys() == {
        "constraint_names",
        "first_drift_checks",
        "matmul_rates",
        "unit",
        "untrained",
    }
    assert not any(getattr(StudyNotes(), name) for name in names)


@covers("S18")
@pytest.mark.parametrize(
    ("name", "fact"), [(name, fact) for name, facts in WRONG_FACTS.items() for fact in facts]
)
def test_a_fact_that_is_something_else_is_refused_until_it_is_repaired(
    name: str, fact: object, journal: Journal, tmp_path: Path
) -> None:
    note(tmp_path, "colour", "blue")
    note(tmp_path, name, fact)
    with pytest.raises(StorageError, match=r"line 2 is not readable.*autotune repair"):
        notes_in(journal)
    assert journal.mend() == 1
    assert notes_in(journal) == [("colour", "blue")]
