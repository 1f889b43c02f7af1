"""Every command that takes a study or a storage, with a file that several processes share."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from autotune.commands.common import warm_start_from
from autotune.searching.run.events import Warned
from children import WORKLOADS, autotune
from covering import covers
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in

USAGE, STORAGE = 2, 5
FASTER = "16.00x faster than your settings"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a file with a finished search of five trials, as given in its folder."""
    folder = tmp_path / "studies" / "mine"
    folder.mkdir(parents=True)
    options = options_in(folder, storage=f"journal:///{tmp_path / 'shared.log'}")
    events_of(options, ScriptedRunner(lambda config, phase: at(10 * batch_of(config))))
    return "journal:///shared.log"


def test_a_report_reads_it_and_changes_nothing(url: str, tmp_path: Path) -> None:
    before = (tmp_path / "shared.log").read_bytes()
    told = autotune(tmp_path, "report", url, "--html", "page.html", "--csv", "trials.csv")
    assert told.returncode == 0, told.stderr
    assert len((tmp_path / "trials.csv").read_text().splitlines()) == 6
    assert FASTER in autotune(tmp_path, "report", url).stdout
    facts = json.loads(autotune(tmp_path, "report", url, "--json", "-").stdout)
    assert len(facts["trials"]) == 5
    assert (tmp_path / "shared.log").read_bytes() == before


def test_a_search_starts_warm_from_it_and_reading_makes_none(url: str, tmp_path: Path) -> None:
    assert autotune(tmp_path, "report", "journal:///none.log").returncode == STORAGE
    assert not (tmp_path / "none.log").exists()
    whole = f"journal:///{tmp_path / 'shared.log'}"
    for source, storage in ((whole, None), ("scripted", whole)):
        (best, *_) = warm_start_from(source, storage)
        assert best["batch_size"] == 128


@covers("S12")
def test_a_search_says_that_network_file_systems_were_never_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = [SimpleNamespace(mountpoint=str(tmp_path), fstype="nfs4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    options = options_in(tmp_path, storage=f"journal:///{tmp_path / 'shared.log'}", trials=2)
    events = events_of(options, ScriptedRunner())
    (said,) = [
        event.warning for event in events if isinstance(event, Warned) and "nfs4" in event.warning
    ]
    assert "never run" in said


@covers("S2")
def test_repair_rebuilds_it_from_the_studys_folder(url: str, tmp_path: Path) -> None:
    file = tmp_path / "shared.log"
    lines = file.read_bytes().splitlines(keepends=True)
    lines.insert(9, b'{"op_code":8,"worker{"op_code":8,"worker_id":"a"}\n')
    file.write_bytes(b"".join(lines))
    refused = autotune(tmp_path, "report", url)
    assert refused.returncode == STORAGE
    assert "its line 10 is not readable" in refused.stderr
    assert "`autotune repair NAME --storage journal:///shared.log`" in refused.stderr
    done = autotune(tmp_path, "repair", "mine", "--storage", url)
    assert done.returncode == 0, done.stderr
    assert "rebuilt from 5 finished trials" in done.stderr
    assert FASTER in autotune(tmp_path, "report", url).stdout


@covers("S11")
@pytest.mark.parametrize(
    ("storage", "code", "said"),
    [
        ("journal:///nowhere/shared.log", STORAGE, "there is no folder nowhere. Make it"),
        ("journal:////proc/shared.log", STORAGE, "/proc/shared.log"),
        ("journal:///plain.py", STORAGE, "plain.py is no journal of Optuna's"),
        ("journal://", USAGE, "names no file"),
    ],
)
@pytest.mark.parametrize("command", ["search", "worker"])
def test_a_file_that_cannot_be_used_ends_in_one_line(
    command: str, storage: str, code: int, said: str, tmp_path: Path
) -> None:
    model = Path(shutil.copy(WORKLOADS / "plain.py", tmp_path))
    before = model.read_bytes()
    words = ["search", "plain.py"] if command == "search" else ["worker", "plain", "--model", model]
    done = autotune(tmp_path, *words, "--storage", storage)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert model.read_bytes() == before
