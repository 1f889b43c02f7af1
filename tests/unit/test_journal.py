"""The journal: lines that are whole or set aside, and what is refused until it is repaired."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.storage.journal import Journal
from autotune.storage.journal_lines import MOST_BYTES, NoteRecord, TrialRecord
from autotune.values.errors import StorageError
from covering import covers
from study_factories import HOLDS, opened, repaired, tell


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def record(number: int) -> TrialRecord:
    config = {"batch_size": number % 1000 + 1}
    attributes = {"config": config, "value": 1.5, "reason": "naïve", "m": {"blocks": [0.1]}}
    margins = [-0.5, -0.01, -1.0]
    return TrialRecord(number, {"batch_size": 1}, {"batch_size": [1, 2]}, 1.5, margins, attributes)


def write(journal: Journal, *numbers: int) -> None:
    for number in numbers:
        with journal.writing("s", record(number)):
            pass


def numbers_in(journal: Journal) -> list[int]:
    with journal.reading() as lines:
        return [line.record.number for line in lines if isinstance(line.record, TrialRecord)]


def changed(path: tuple[str, ...], value: object) -> str:
    """A line with something else at this place, or nothing."""
    fields: dict[str, Any] = {"schema_version": 1, "study": "s", "record": asdict(record(1))}
    inner = fields
    for name in path[:-1]:
        inner = inner[name]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(fields)


NESTED = json.loads("[" * 300 + "]" * 300)
WRONG = {
    "no object": "[1]",
    "no study": changed(("study",), None),
    "a study that is a number": changed(("study",), 5),
    "a study that is half a character": changed(("study",), "\ud800"),
    "no configuration": changed(("record", "attributes", "config"), None),
    "a configuration of nothing": changed(("record", "attributes", "config"), 7),
    "a setting that there is not": changed(("record", "attributes", "config"), {"speed": 1}),
    "no verdict": changed(("record", "attributes", "value"), None),
    "NaN": changed(("record", "value"), float("nan")),
    "NaN as a text": changed(("record", "value"), "nan"),
    "a detail of another type": changed(("record", "attributes", "seconds"), "1.5"),
    "NaN among the details": changed(("record", "attributes", "m"), float("nan")),
    "too few margins": changed(("record", "constraints"), [0.0]),
    "none of the choices": changed(("record", "params", "batch_size"), 3),
    "a parameter without choices": changed(("record", "choices"), {}),
    "no choice": changed(("record", "choices", "batch_size"), []),
    "other choices than before": changed(("record", "choices", "batch_size"), [1, 3]),
    "a number below zero": changed(("record", "number"), -1),
    "deep": changed(("record", "attributes", "m"), NESTED),
    "very deep": "[" * 200_000,
    "huge": changed(("record", "attributes", "m"), "x" * (MOST_BYTES + 9)),
}


def test_a_record_is_read_back_as_it_was_written(journal: Journal) -> None:
    written = [record(0), NoteRecord("numerics_checks", {"a": "ü"}), record(1)]
    for one in written:
        with journal.writing("s", one):
            pass
    with journal.reading() as lines:
        assert [line.record for line in lines] == written
        assert {line.study for line in lines} == {"s"}


def test_the_journal_and_its_folder_are_the_owners_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "studies" / "mine")
    write(journal, 0)
    assert journal.path.parent.stat().st_mode & 0o777 == 0o700
    assert journal.path.stat().st_mode & 0o777 == 0o600


@covers("S4")
def test_wherever_the_last_line_is_cut_everything_before_it_is_whole(journal: Journal) -> None:
    write(journal, 0, 1)
    whole = journal.path.read_bytes()
    write(journal, 2)
    everything = journal.path.read_bytes()
    torn = journal.path.with_name("results.jsonl.torn")
    for end in range(len(whole), len(everything) + 1):
        journal.path.write_bytes(everything[:end])
        torn.unlink(missing_ok=True)
        is_whole = end >= len(everything) - 1  # at most the end of the line is missing
        assert numbers_in(journal) == ([0, 1, 2] if is_whole else [0, 1]), end
        cut = everything[len(whole) : end]
        set_aside = torn.read_bytes() if torn.exists() else b""
        assert set_aside == (b"" if is_whole or not cut else cut + b"\n"), end
        write(journal, 3)
        assert numbers_in(journal)[-1] == 3, end


def test_a_torn_line_is_set_aside_before_the_next_one_is_written(journal: Journal) -> None:
    write(journal, 0)
    with journal.path.open("ab") as file:
        file.write(b'{"schema_version": 1, "stu')
    write(journal, 1)
    assert numbers_in(journal) == [0, 1]


@covers("R12")
def test_a_journal_of_a_newer_autotune_is_refused_and_left_as_it_is(journal: Journal) -> None:
    write(journal, 0)
    newer = json.dumps({"schema_version": 2, "study": "s", "what": "else"}) + "\n"
    with journal.path.open("a") as file:
        file.write(newer)
    before = journal.path.read_bytes()
    for use in (lambda: numbers_in(journal), journal.mend):
        with pytest.raises(StorageError, match="line 2: format 2 was written by a newer autotune"):
            use()
    assert journal.path.read_bytes() == before


def test_a_broken_line_in_the_middle_is_refused_until_it_is_repaired(journal: Journal) -> None:
    write(journal, 0)
    with journal.path.open("ab") as file:
        file.write(b"\xff\x00 nonsense\n")
    write(journal, 1)
    with pytest.raises(StorageError, match=r"line 2 is not readable.*autotune repair"):
        numbers_in(journal)
    assert journal.mend() == 1
    files = [journal.path, journal.path.with_name("results.jsonl.torn")]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
    assert numbers_in(journal) == [0, 1]


@covers("S19")
def test_wherever_a_byte_is_damaged_every_other_trial_is_kept(journal: Journal) -> None:
    write(journal, 0, 1, 2)
    whole = journal.path.read_bytes()
    first, second = whole.index(b"\n"), whole.index(b"\n", whole.index(b"\n") + 1)
    for place in range(first, second + 1):
        journal.path.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
        with pytest.raises(StorageError, match=r"line [12] is not readable.*autotune repair"):
            numbers_in(journal)
        assert journal.mend() == 1, place
        assert numbers_in(journal) == ([0, 1, 2] if place in (first, second) else [0, 2]), place


BETWEEN = [b"", b"\0" * 4096, b"{", b'{"schema_version": 1, "stu', b" " * (MOST_BYTES + 1)]


@pytest.mark.parametrize("between", BETWEEN, ids=range(len(BETWEEN)))
def test_trials_that_share_a_line_with_damage_are_kept(journal: Journal, between: bytes) -> None:
    write(journal, 0, 1, 2)
    lines = journal.path.read_bytes().splitlines(keepends=True)
    damaged = lines[0].strip() + between + lines[1]
    journal.path.write_bytes(damaged + lines[2])
    with pytest.raises(StorageError, match=r"line 1 is not readable.*autotune repair"):
        numbers_in(journal)
    assert journal.mend() == 1
    assert numbers_in(journal) == [0, 1, 2]
    assert journal.path.with_name("results.jsonl.torn").read_bytes() == damaged


def test_damaged_choices_of_one_trial_leave_the_others(journal: Journal) -> None:
    journal.path.write_text(changed(("record", "choices", "batch_size"), [1, 3]) + "\n")
    write(journal, 0, 2)
    with pytest.raises(StorageError, match=r"line 1 is not readable.*autotune repair"):
        numbers_in(journal)
    assert journal.mend() == 1
    assert numbers_in(journal) == [0, 2]


@pytest.mark.parametrize("name", WRONG)
def test_a_line_that_is_wrong_is_refused_until_it_is_repaired(
    name: str, nine: SearchSpace, url: str, journal: Journal, tmp_path: Path
) -> None:
    write(journal, 0)
    with journal.path.open("a") as file:
        file.write(WRONG[name] + "\n")
    write(journal, 2)
    with pytest.raises(StorageError, match=r"line 2 is not readable.*autotune repair"):
        opened(url, nine, tmp_path)
    said = repaired(tmp_path)
    assert "was rebuilt from 2 finished trials." in said
    assert "\n1 unreadable lines were moved to results.jsonl.torn." in said
    assert journal.path.with_name("results.jsonl.torn").read_text() == WRONG[name] + "\n"
    assert [trial.number for trial in opened(url, nine, tmp_path).finished()] == [0, 2]


def test_a_last_line_that_is_huge_and_never_ended_is_set_aside(journal: Journal) -> None:
    write(journal, 0)
    tail = b"x" * (2 * MOST_BYTES + 9)
    with journal.path.open("ab") as file:
        file.write(tail)
    assert numbers_in(journal) == [0]
    assert journal.path.with_name("results.jsonl.torn").read_bytes() == tail + b"\n"


def test_a_line_that_does_not_fit_the_database_is_refused(
    nine: SearchSpace, url: str, journal: Journal, tmp_path: Path
) -> None:
    tell(opened(url, nine, tmp_path / "other"), 80.0, HOLDS)
    write(journal, 1)
    with pytest.raises(StorageError, match=r"line 1 is not readable.*autotune repair"):
        opened(url, nine, tmp_path)


def test_a_number_far_ahead_is_not_filled_up_to(
    nine: SearchSpace, url: str, journal: Journal, tmp_path: Path
) -> None:
    write(journal, 1_000_000_000)
    assert [trial.number for trial in opened(url, nine, tmp_path).finished()] == [0]


def test_a_full_disk_leaves_the_journal_as_it_was(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(journal, 0)
    before = journal.path.read_bytes()
    real = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space left"):
        write(journal, 1)
    assert journal.path.read_bytes() == before


def test_a_number_that_is_not_finite_is_never_written(journal: Journal) -> None:
    with (
        pytest.raises(ValueError, match="Out of range"),
        journal.writing("s", NoteRecord("n", 1e999)),
    ):
        pass
    assert not journal.path.exists() or journal.path.read_bytes() == b""
