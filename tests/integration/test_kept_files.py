"""Files of the user's that runs of a script change or delete are kept as they were."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.configuration.job import Job, Measure, MeasurePlan, Observe
from autotune.configuration.script import Script
from autotune.processes.runner import SubprocessRunner
from autotune.values.outcome import Measured, Observed, TrialOutcome, UserError
from children import autotune
from covering import covers
from needs import installed

SCRIPT = Path(__file__).parents[1] / "scripts" / "overwrites.py"
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
def runner(folder: Path) -> Iterator[SubprocessRunner]:
    with SubprocessRunner(folder / "inductor", warm=False, keep=folder / "kept") as runner:
        yield runner


def run(
    runner: SubprocessRunner, folder: Path, task: Measure | Observe, after: int = 3, *words: str
) -> TrialOutcome:
    job = Job(
        task,
        device="cpu",
        model_path=str(folder / "train.py"),
        script=Script((str(after), *words)),
        deadline_seconds=120.0,
    )
    return runner.run(job, folder / "trial")


def kept(folder: Path) -> dict[str, str]:
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
    [
        (Observe(), 3, Observed),
        (Measure(MeasurePlan(max_seconds=0.5)), 20, Measured),
    ],
)
def test_what_a_run_changes_or_deletes_is_kept_as_it_was(
    runner: SubprocessRunner, folder: Path, task: Measure | Observe, after: int, outcome: type
) -> None:
    for _ in range(2):  # the second run finds files of the first, which do not count
        assert isinstance(run(runner, folder, task, after), outcome)
        assert kept(folder) == KEPT
    assert (folder / "last.pt").read_bytes() != BEFORE["last.pt"].encode()
    assert not (folder / "checkpoint").exists()


@covers("U16")
def test_nothing_is_overwritten_that_cannot_be_kept(runner: SubprocessRunner, folder: Path) -> None:
    (folder / "kept").write_text("a file where the folder would be")
    outcome = run(runner, folder, Measure(MeasurePlan()))
    assert isinstance(outcome, UserError)
    assert f"it would change or delete {folder / 'last.pt'}" in outcome.detail
    assert (folder / "last.pt").read_text() == BEFORE["last.pt"]


def test_a_large_file_that_is_changed_in_place_is_left_alone(
    runner: SubprocessRunner, folder: Path
) -> None:
    with (folder / "log.txt").open("r+b") as log:
        log.truncate(65 << 20)
    assert isinstance(run(runner, folder, Observe()), Observed)
    assert set(kept(folder)) == set(KEPT) - {"log.txt"}


def test_what_safetensors_writes_over_is_kept(runner: SubprocessRunner, folder: Path) -> None:
    installed("safetensors")
    (folder / "model.safetensors").write_text("of a week")
    assert isinstance(run(runner, folder, Observe(), 3, "safetensors"), Observed)
    found = folder / "kept" / folder.relative_to("/") / "model.safetensors"
    assert found.read_text() == "of a week"


def test_a_person_is_told_where(folder: Path) -> None:
    done = autotune(folder, "search", "train.py", "--dry-run", "--", "3")
    assert done.returncode == 0, done.stderr
    place = done.stderr.partition("changed or deleted are kept in ")[2].split()[0]
    found = folder / place / folder.relative_to("/")
    assert {str(p.relative_to(found)) for p in found.rglob("*") if p.is_file()} == set(KEPT)
