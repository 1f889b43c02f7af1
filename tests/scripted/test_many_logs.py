"""A study of a thousand trials, each with a log as long as it may be, is reported as any other."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from autotune.process.children import MOST_BYTES
from autotune.report.data import read_report
from autotune.report.html import page
from autotune.study.archive import StudyPlace
from covering import covers
from finished_study import finished_study

TRIALS = 1000
OF_A_TRIAL = ("trial_params", "trial_values", "trial_user_attributes", "trial_system_attributes")

opened: list[str] | None = None


def note(event: str, arguments: tuple) -> None:
    if opened is not None and event == "open":
        opened.append(str(arguments[0]))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study whose trials were repeated until there are enough of them."""
    place = finished_study(tmp_path_factory.mktemp("logs"))
    with closing(sqlite3.connect(place / "study.db")) as database:
        repeat(database)
        database.commit()
    for number in range(TRIALS):
        folder = place / "trials" / f"{number:04d}"
        folder.mkdir(exist_ok=True)
        for name in ("stdout.log", "stderr.log"):
            with (folder / name).open("wb") as file:
                file.truncate(MOST_BYTES)  # without taking any space
    yield place
    shutil.rmtree(place)


def repeat(database: sqlite3.Connection) -> None:
    """Insert the last trial's rows again, under the numbers that follow."""
    last, number = database.execute("SELECT max(trial_id), max(number) FROM trials").fetchone()
    for more in range(1, TRIALS - number):
        values = {"trial_id": str(last + more), "number": str(number + more)}
        copy(database, "trials", values, last)
        for table in OF_A_TRIAL:
            copy(database, table, {"trial_id": str(last + more)}, last)


def copy(database: sqlite3.Connection, table: str, values: dict[str, str], last: int) -> None:
    rows = database.execute(f"PRAGMA table_info({table})").fetchall()
    own = {name for _, name, *_, key in rows if key}
    names = [name for _, name, *_ in rows if name not in own or name in values]
    taken = ", ".join(values.get(name, name) for name in names)
    database.execute(
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {taken} FROM {table} WHERE trial_id = ?",
        (last,),
    )


@covers("S15")
def test_a_report_reads_no_log(study: Path) -> None:
    global opened  # noqa: PLW0603 (an audit hook has nothing else to be told by)
    sys.addaudithook(note)
    opened = []
    html = page(read_report(StudyPlace(f"sqlite:///{study / 'study.db'}", study / "best.yaml")))
    (study / "best.yaml").read_bytes()
    read, opened = opened, None
    assert len(re.findall("<tr", html)) > TRIALS
    assert str(study / "best.yaml") in read, "what is opened is seen"
    assert not [name for name in read if name.endswith(".log")]
