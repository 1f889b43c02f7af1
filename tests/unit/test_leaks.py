"""What is looked for after every test is found, and cleared away."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import psutil
import pytest

import leaks
from autotune.tuning.running.device_locks import device_locks

DAEMON = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "_PATIENCE_SECONDS", 0.1)


def is_sleeping(pid: int) -> bool:
    """Whether it has become that program; until then it may show no environment."""
    process = psutil.Process(pid)
    return process.name() == "sleep" and leaks.MARK in process.environ()


def test_nothing_is_found_where_nothing_was_left() -> None:
    before = leaks.traces()
    subprocess.run(["true"], check=True)
    assert leaks.left_since(before) == set()


def test_a_process_that_was_left_is_named_and_ended() -> None:
    before = leaks.traces()
    with subprocess.Popen(["sleep", "60"]) as process:
        while not is_sleeping(process.pid):
            time.sleep(0.01)
        (left,) = leaks.left_since(before)
        assert f"process {process.pid} " in left
        assert "sleep 60" in left
        leaks.clear({left})
    assert leaks.left_since(before) == set()


def test_a_daemon_that_nobody_waits_for_is_found() -> None:
    before = leaks.traces()
    subprocess.run([sys.executable, "-c", DAEMON], check=True)
    (left,) = leaks.left_since(before)
    assert "os.setsid" in left
    leaks.clear({left})
    assert leaks.left_since(before) == set()


def test_shared_memory_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "_NEIGHBOURS_SECONDS", 0.5)
    before = leaks.traces()
    memory = SharedMemory(create=True, size=8)
    try:
        assert leaks.left_since(before) == {memory.name.removeprefix("/")}
    finally:
        memory.close()
        memory.unlink()


def test_a_temporary_folder_of_ours_is_found_and_removed() -> None:
    before = leaks.traces()
    folder = Path(tempfile.mkdtemp(prefix="autotune-"))
    left = leaks.left_since(before)
    assert left == {folder.name}
    leaks.clear(left)
    assert not folder.exists()


def test_a_lock_that_is_held_is_found(tmp_path: Path) -> None:
    before = leaks.traces()
    with (tmp_path / "file").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        inode = os.fstat(file.fileno()).st_ino
        (left,) = leaks.left_since(before)
    assert left.startswith("FLOCK lock to write ")
    assert left.endswith(f":{inode}")


def test_a_device_that_is_held_is_found() -> None:
    before = leaks.traces()
    with device_locks(["test-leaks"]):
        assert leaks.left_since(before) == {"lock on @autotune/device/test-leaks"}
    assert leaks.left_since(before) == set()
