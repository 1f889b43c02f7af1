"""Files of the user's that runs of a script change or delete are kept as they were."""

import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from asked_scripts import Ask, observed
from autotune.configuration.job import Measure, MeasurePlan, Observe
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured, Observed, UserError
from children import autotune, ended_as, succeeded
from covering import covers
from needs import installed
from tiers import late, late_in

SCRIPTS = Path(__file__).parents[2] / "scripts"
SCRIPT = SCRIPTS / "overwrites.py"
BEFORE = {
    "last.pt": "the weights of a week",
    "log.txt": "epoch 1\n",
    "replaced.json": "before",
    "deleted.txt": "wanted",
    "jit.pt": "a model of last week",
    "jit2.pt": "another one",
    "forked.txt": "by another process",
    "checkpoint/model/weights": "of an epoch",
    "newest.txt": "news",
    "best.txt": "of Monday",
    "second.txt": "of Sunday",
    "moved.txt": "moved",
}
KEPT = {
    **{name: BEFORE[name] for name in list(BEFORE)[:8]},
    "older.txt": "news",  # under the names that they had when they went
    "second.txt": "of Sunday",
    "second.txt~2": "of Monday",
    "made/moved.txt": "moved",
}
# Arguments have the libraries' names. Python does not see the file that creat(2) empties.
LIKE_LIBRARIES = {
    "in_c.py": "import ctypes\nwrite = lambda path: ctypes.CDLL(None).creat(path.encode(), 0o644)",
    "h5py.py": """from in_c import write
class File:
    def __init__(self, name, mode="r"): mode == "r" or write(name)""",
    "cv2.py": "from in_c import write\ndef imwrite(filename, img): write(filename)",
    "pyarrow/__init__.py": """from in_c import write
class table:
    def __init__(self, columns): self.schema = columns
def output_stream(source): write(source)""",
    "pyarrow/csv.py": """from in_c import write
def write_csv(data, output_file): write(output_file)""",
    "pyarrow/feather.py": "from in_c import write\ndef write_feather(df, dest): write(dest)",
    "pyarrow/ipc.py": """from in_c import write
class RecordBatchFileWriter:
    def __init__(self, sink, schema): write(sink)
class RecordBatchStreamWriter:
    def __init__(self, sink, schema): write(sink)
new_file, new_stream = RecordBatchFileWriter, RecordBatchStreamWriter""",
    "pyarrow/parquet.py": """from in_c import write
class ParquetWriter:
    def __init__(self, where, schema): write(where)
def write_table(table, where): ParquetWriter(where, table.schema)""",
}
SAVED = {
    "torch": ("program.pt2",),
    "h5py": ("written.h5", "appended.h5"),
    "cv2": ("image.png",),
    "pyarrow": (
        *("table.parquet", "table.feather", "table.csv"),
        *("table.arrow", "table.stream", "table.bin"),
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the script and the files of a real training."""
    folder = tmp_path / "work"
    for name, text in BEFORE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "link").symlink_to("anywhere")
    cached = tmp_path / "temporary" / "torchinductor_mine" / "lock"
    cached.parent.mkdir(parents=True)
    cached.write_text("a file of the compiler, which needs no keeping")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("HF_HOME", str(tmp_path))  # above the project, as some containers set it
    shutil.copy(SCRIPT, folder / "train.py")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def runner(folder):
    with SubprocessRunner(folder / "inductor", warm=False, keep=folder / "kept") as runner:
        yield runner


def run(runner, folder, task, after=3, *words):
    ask = Ask(runner, folder / "trial")
    return ask(str(folder / "train.py"), str(after), *words, task=task)


def kept(folder):
    below = folder / "kept" / folder.relative_to("/")
    assert (below / "link").readlink() == Path("anywhere")
    return {
        str(path.relative_to(below)): path.read_text()
        for path in (folder / "kept").rglob("*")
        if path.is_file()
    }


@covers("U16")
@pytest.mark.parametrize(
    ("task", "after", "outcome"),
    [(Observe(), 3, Observed), late(Measure(MeasurePlan(max_seconds=0.5)), 20, Measured)],
)
def test_what_a_run_changes_or_deletes_is_kept_as_it_was(runner, folder, task, after, outcome):
    for _ in range(2):  # the second run finds files of the first, which do not count
        assert isinstance(run(runner, folder, task, after), outcome)
        assert kept(folder) == KEPT
    assert (folder / "last.pt").read_bytes() != BEFORE["last.pt"].encode()
    assert not (folder / "checkpoint").exists()


@covers("U16")
def test_nothing_is_overwritten_that_cannot_be_kept(runner, folder):
    (folder / "kept").write_text("a file where the folder would be")
    outcome = ended_as(UserError, run(runner, folder, Measure(MeasurePlan())))
    assert f"it would change or delete {folder / 'last.pt'}" in outcome.detail
    assert (folder / "last.pt").read_text() == BEFORE["last.pt"]


def test_a_large_file_that_is_changed_in_place_is_left_alone(runner, folder):
    with (folder / "log.txt").open("r+b") as log:
        log.truncate(65 << 20)
    assert isinstance(run(runner, folder, Observe()), Observed)
    assert set(kept(folder)) == set(KEPT) - {"log.txt"}


def test_what_safetensors_writes_over_is_kept(runner, folder):
    installed("safetensors")
    (folder / "model.safetensors").write_text("of a week")
    assert isinstance(run(runner, folder, Observe(), 3, "safetensors"), Observed)
    found = folder / "kept" / folder.relative_to("/") / "model.safetensors"
    assert found.read_text() == "of a week"


def seen_to_overwrite(runner, folder, script, word):
    """Return the names of the files that a script of `tests/scripts` was seen to write over."""
    shutil.copy(SCRIPTS / script, folder / "train.py")
    found = observed(run(runner, folder, Observe(), word)).surroundings
    return [str(Path(path).relative_to(folder)) for path in found.overwritten]


@pytest.mark.parametrize("library", late_in(SAVED, "h5py", "cv2", "pyarrow"))
def test_what_libraries_write_over_in_c_is_named_and_kept(runner, folder, library):
    for name, text in {} if library == "torch" else LIKE_LIBRARIES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    before = {name: f"{name} of a week".encode() for name in (*SAVED[library], "read.h5")}
    for name, content in before.items():
        (folder / name).write_bytes(content)
    assert seen_to_overwrite(runner, folder, "saves_in_c.py", library) == list(SAVED[library])
    below = folder / "kept" / folder.relative_to("/")
    assert {path.name: path.read_bytes() for path in below.iterdir()} == {
        name: before[name] for name in SAVED[library]
    }


def test_a_database_is_kept_as_it_was_before_the_script_connects(runner, folder):
    """Of one with a write-ahead log, what was written last is in the log."""
    connections = []
    for name in ("changed.db", "large.db", "journaled.db", "read.db"):
        database = sqlite3.connect(folder / name)
        if name == "journaled.db":
            database.execute("pragma journal_mode = wal")
        database.execute("create table runs (number)")
        if name == "large.db":
            database.execute("insert into runs values (zeroblob(?))", (65 << 20,))
        database.execute("insert into runs values (0)")
        database.commit()
        connections.append(database)  # the log goes with the last connection
    named = seen_to_overwrite(runner, folder, "uses_databases.py", "")
    assert named == ["changed.db", "large.db", "journaled.db"]
    below = folder / "kept" / folder.relative_to("/")
    names = {path.name for path in below.iterdir()}
    assert names == {"changed.db", "journaled.db", "journaled.db-wal"}
    for name, added in (("changed.db", 1), ("journaled.db", 2)):
        for place, rows in ((below, [(0,)]), (folder, [(0,), (added,)])):
            with sqlite3.connect(place / name) as database:
                assert database.execute("select number from runs").fetchall() == rows
            database.close()
    for database in connections:
        database.close()


def test_a_person_is_told_where(folder):
    many = [f"{number}.txt" for number in range(50)]
    for name in many:
        (folder / name).write_text("before")
    done = succeeded(autotune(folder, "search", "train.py", "--dry-run", "--", "3", "many"))
    place, _, names = done.stderr.partition("changed or deleted are backed up in ")[2].partition(
        ": "
    )
    assert re.match(r"0\.txt, 1\.txt, 10\.txt, 11\.txt, 12\.txt and \d+ more\n", names)
    found = folder / place / folder.relative_to("/")
    copies = {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()}
    assert copies == {*KEPT, *many}
    overwrites = re.search(r"each run overwrites: .* and (\d+) more \(see (.*)\)", done.stderr)
    deletes = re.search(r"each run deletes: .* and \d more \(see (.*)\)", done.stderr)
    assert overwrites
    assert deletes
    assert int(overwrites[1]) > len(many)
    assert overwrites[2] == deletes[1] == place
