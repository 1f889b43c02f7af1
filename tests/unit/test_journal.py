"""What was told is written down first, and is there again whatever became of the database."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from autotune.configuration.constraints import Verdict
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.storage.journal import Journal
from autotune.storage.journal_lines import MOST_BYTES, NoteRecord, TrialRecord
from autotune.storage.leases import own_lease
from autotune.storage.note_types import DriftCheck, as_json
from autotune.storage.trial_details import TrialDetails
from autotune.study import study as study_module
from autotune.study.opening import open_study
from autotune.study.repair import repair
from autotune.study.study import INTERRUPTED, TuningStudy
from autotune.values.errors import StorageError
from covering import covers
from tuning import CRASHED, HOLDS, OOM, THROUGHPUT, tell


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def opened(url: str, space: SearchSpace, journal: Journal) -> TuningStudy:
    study = open_study("s", url, space, THROUGHPUT, journal)
    study.use_sampler(RandomSampler(seed=0), seed=0)
    return study


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


DRIFT_CHECK = DriftCheck(trials=4, samples_per_second=101.5)
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
    "huge with a record at its end": " " * (MOST_BYTES + 1) + changed(("study",), "s"),
}


def told(study: TuningStudy) -> list[tuple[int, TrainingConfig, Verdict]]:
    return [(t.number, t.config, t.verdict) for t in study.finished()]


def test_a_record_is_read_back_as_it_was_written(journal: Journal) -> None:
    written = [record(0), NoteRecord("gates", {"a": "ü"}), record(1)]
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


@pytest.mark.parametrize("name", WRONG)
def test_a_line_that_is_wrong_is_refused_until_it_is_repaired(
    name: str, nine: SearchSpace, url: str, journal: Journal, tmp_path: Path
) -> None:
    write(journal, 0)
    with journal.path.open("a") as file:
        file.write(WRONG[name] + "\n")
    write(journal, 2)
    with pytest.raises(StorageError, match=r"line 2 is not readable.*autotune repair"):
        opened(url, nine, journal)
    repaired = repair(tmp_path, tmp_path / "study.db")
    assert (repaired.trials, repaired.set_aside) == (2, 1)
    assert journal.path.with_name("results.jsonl.torn").read_text() == WRONG[name] + "\n"
    assert [trial.number for trial in opened(url, nine, journal).finished()] == [0, 2]


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
    tell(opened(url, nine, Journal(tmp_path / "other")), 80.0, HOLDS)
    write(journal, 1)
    with pytest.raises(StorageError, match=r"line 1 is not readable.*autotune repair"):
        opened(url, nine, journal)


def test_who_leads_is_known_from_the_storage_alone(
    nine: SearchSpace, url: str, journal: Journal
) -> None:
    study = opened(url, nine, journal)
    for name, fact in (("leader", {"pid": 1}), ("closed", True)):
        with journal.writing("s", NoteRecord(name, fact)):
            pass
    assert opened(url, nine, journal).notes.leader is None
    assert not opened(url, nine, journal).notes.is_closed
    before = journal.path.read_bytes()
    study.notes.leader = lease = own_lease()
    study.notes.is_closed = True
    assert opened(url, nine, journal).notes.leader == lease
    assert opened(url, nine, journal).notes.is_closed
    assert journal.path.read_bytes() == before


def test_numbers_stay_the_same_where_trials_were_lost_between(
    nine: SearchSpace, url: str, journal: Journal, tmp_path: Path
) -> None:
    study = opened(url, nine, journal)
    tell(study, 80.0, HOLDS)
    study.lose(study.ask()[0], "the machine was away")
    late = study.ask()[0]
    tell(study, 90.0, HOLDS)
    study.tell(
        late, Verdict(85.0, HOLDS, "why"), TrialDetails(seconds=1.5)
    )  # after a higher number
    assert [number for number, _, _ in told(study)] == [0, 2, 3]
    (tmp_path / "study.db").unlink()
    again = opened(url, nine, journal)
    assert told(again) == told(study)
    states = [trial.state.name for trial in again._study.trials]
    assert states == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert tell(again, 70.0, HOLDS) not in [config for _, config, _ in told(study)]


def test_a_number_far_ahead_is_not_filled_up_to(
    nine: SearchSpace, url: str, journal: Journal
) -> None:
    write(journal, 1_000_000_000)
    assert [trial.number for trial in opened(url, nine, journal).finished()] == [0]


def test_a_trial_that_cannot_be_given_up_says_why_however_often_that_is_tried(
    nine: SearchSpace, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study("s", url, nine, THROUGHPUT)
    number, _ = study.ask()

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(study_module, "give_up", fails)
    with pytest.raises(OSError, match="No space left"):
        study.lose(number, "the machine was away")
    study.lose(number, INTERRUPTED)


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


def test_what_is_not_finite_is_never_written(journal: Journal) -> None:
    with (
        pytest.raises(ValueError, match="Out of range"),
        journal.writing("s", NoteRecord("n", 1e999)),
    ):
        pass
    assert not journal.path.exists() or journal.path.read_bytes() == b""


def test_a_database_that_is_gone_is_made_from_the_journal(
    nine: SearchSpace, url: str, journal: Journal, tmp_path: Path
) -> None:
    study = opened(url, nine, journal)
    study.notes.numerics_checks = {"a": "1"}
    for value, margins in ((80.0, HOLDS), (90.0, OOM), (None, CRASHED)):
        tell(study, value, margins)
    stored = [trial.value for trial in study._study.trials]
    (tmp_path / "study.db").unlink()
    again = opened(url, nine, journal)
    assert told(again) == told(study)
    assert [trial.value for trial in again._study.trials] == stored
    assert again.notes.numerics_checks == {"a": "1"}


def test_a_trial_that_was_written_down_but_not_told_is_told_under_its_number(
    nine: SearchSpace, url: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = opened(url, nine, journal)
    tell(study, 80.0, HOLDS)

    def dies(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr("autotune.study.study.write_trial", dies)
        with pytest.raises(KeyboardInterrupt):
            tell(study, 90.0, HOLDS)
    states = [trial.state for trial in study._study.trials]
    assert states == [TrialState.COMPLETE, TrialState.RUNNING]
    again = opened(url, nine, journal)
    assert [(number, verdict.value) for number, _, verdict in told(again)] == [(0, 80), (1, 90)]
    assert again.reap() == 0
    assert told(opened(url, nine, journal)) == told(again), "told once"


def test_a_note_that_was_written_down_but_not_kept_is_kept(
    nine: SearchSpace, url: str, journal: Journal
) -> None:
    study = opened(url, nine, journal)
    study.notes.add_drift_check("", DRIFT_CHECK)
    with journal.writing("s", NoteRecord("anchors", as_json([DRIFT_CHECK] * 2))):
        pass
    assert opened(url, nine, journal).notes.drift_checks("") == [DRIFT_CHECK] * 2


def test_a_journal_that_is_gone_is_made_from_the_database(
    nine: SearchSpace, url: str, journal: Journal, tmp_path: Path
) -> None:
    study = opened(url, nine, journal)
    study.notes.numerics_checks = {"a": "1"}
    tell(study, 80.0, HOLDS)
    journal.path.unlink()
    opened(url, nine, journal)
    (tmp_path / "study.db").unlink()
    again = opened(url, nine, journal)
    assert told(again) == told(study)
    assert again.notes.numerics_checks == {"a": "1"}


@covers("S2")
def test_repair_makes_the_database_anew_and_keeps_every_old_one(
    nine: SearchSpace, url: str, journal: Journal, tmp_path: Path
) -> None:
    study = opened(url, nine, journal)
    for value in (80.0, 90.0):
        tell(study, value, HOLDS)
    database = tmp_path / "study.db"
    for number in (1, 2):
        rubbish = f"rubbish {number}".encode() * 1000
        database.write_bytes(rubbish)
        repaired = repair(tmp_path, tmp_path / "study.db")
        assert (repaired.trials, repaired.set_aside) == (2, 0)
        assert repaired.backup == tmp_path / f"study.db.bak-{number}"
        assert repaired.backup.read_bytes() == rubbish
        assert told(opened(url, nine, journal)) == told(study)
    assert (tmp_path / "study.db.bak-1").read_bytes() == b"rubbish 1" * 1000
    assert not (tmp_path / "study.db.rebuilt").exists()


def test_repair_without_a_trial_changes_nothing(tmp_path: Path, journal: Journal) -> None:
    database = tmp_path / "study.db"
    database.write_bytes(b"rubbish")
    with pytest.raises(StorageError, match="does not exist"):
        repair(tmp_path, tmp_path / "study.db")
    with journal.writing("s", NoteRecord("n", 1)):
        pass
    with pytest.raises(StorageError, match="holds no finished trial"):
        repair(tmp_path, tmp_path / "study.db")
    assert database.read_bytes() == b"rubbish"


def test_a_repaired_study_is_what_optuna_alone_reads(
    nine: SearchSpace, url: str, journal: Journal, tmp_path: Path
) -> None:
    study = opened(url, nine, journal)
    wanted = next(config for config in nine.configurations() if config["num_workers"])
    study.tell(
        study.ask(wanted)[0], Verdict(80.0, HOLDS, "why"), TrialDetails(seconds=1.5)
    )  # none idle
    (before,) = study._study.trials
    repair(tmp_path, tmp_path / "study.db")
    (after,) = optuna.load_study(study_name="s", storage=url).trials
    assert (after.params, after.distributions) == (before.params, before.distributions)
    assert after.constraints == before.constraints
    assert dict(after.user_attrs).items() <= dict(before.user_attrs).items()
