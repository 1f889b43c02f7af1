"""A study that cannot be used, is someone else's or is stopped by a signal is left as it is."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from autotune.study.storage import study_lock
from children import HURRIED, WORKLOADS, autotune, nobody_is_left, start_autotune, stop, wait_until
from command_line import told
from covering import covers
from terminals import Terminal

STORAGE, TERMINATED, INTERRUPTED = 5, 143, 130


@pytest.fixture
def model(tmp_path):
    return shutil.copy(WORKLOADS / "plain.py", tmp_path / "mine.py")


@covers("S7")
def test_a_study_that_is_in_use_is_refused_with_the_holders_number(model, tmp_path):
    with study_lock(tmp_path / "studies" / "mine"):
        done = autotune(tmp_path, "search", model)
    assert done.returncode == STORAGE
    assert re.search(r"in use by process \d+", done.stderr)
    assert "--study NAME" in done.stderr
    assert not (tmp_path / "studies" / "mine" / "trials").exists()


def refused(folder, model, *flags):
    """The message of a search in this process whose storage cannot be used."""
    done = told(folder, "search", model, *flags)
    assert done.code == STORAGE, done.err
    assert "Traceback" not in done.err
    return done.err


@covers("S2")
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(model, tmp_path):
    database = tmp_path / "studies" / "mine" / "study.db"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"holiday photos" * 1000)
    assert "studies/mine/study.db" in refused(tmp_path, model)
    assert database.read_bytes() == b"holiday photos" * 1000


@covers("X8")
@pytest.mark.parametrize("storage", ["nonsense", "nosuchdb://user:secret@host/name"])
def test_a_storage_that_is_none_is_refused_without_its_password(storage, model, tmp_path):
    done = told(tmp_path, "search", model, "--storage", storage)
    assert done.code in {2, STORAGE}, done.err
    assert "Traceback" not in done.err
    assert "secret" not in done.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"secret" in path.read_bytes()]


@covers("R1", "R3")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, TERMINATED), (signal.SIGINT, INTERRUPTED)]
)
def test_a_signal_in_the_baseline_ends_the_search_and_its_children(number, code, model, tmp_path):
    search = start_autotune(tmp_path, "search", model)
    begun = tmp_path / "studies" / "mine" / "trials" / "0000" / "0" / "job.json"
    assert wait_until(begun.exists, seconds=60)
    assert stop(search, number) == code
    assert nobody_is_left(tmp_path)
    assert "Traceback" not in (tmp_path / "stderr.txt").read_text()
    assert not list(tmp_path.rglob("best.yaml"))


@covers("R2")
def test_a_third_signal_while_children_are_ended_leaves_none(tmp_path):
    search = start_autotune(tmp_path, "search", WORKLOADS / "stubborn.py")
    log = tmp_path / "studies" / "stubborn" / "trials" / "0000" / "0" / "stdout.log"
    assert wait_until(lambda: log.exists() and "hangs" in log.read_text(), seconds=60)
    for _ in range(2):
        search.send_signal(signal.SIGINT)
        assert not wait_until(lambda: search.poll() is not None, seconds=0.3), "still busy"
    assert stop(search, signal.SIGINT) == INTERRUPTED
    assert nobody_is_left(tmp_path)
    assert "Traceback" not in (tmp_path / "stderr.txt").read_text()


SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


def test_ctrl_c_ends_a_search_and_leaves_the_terminal_as_it_was(tmp_path):
    terminal = Terminal(columns=80)
    before = terminal.settings
    environ = {k: v for k, v in os.environ.items() if k not in {"CI", "NO_COLOR", "COLUMNS"}}
    search = subprocess.Popen(
        [sys.executable, HURRIED, "search", WORKLOADS / "plain.py"],
        cwd=tmp_path,
        env={**environ, "TERM": "xterm-256color"},
        stdin=terminal.far,
        stdout=terminal.far,
        stderr=terminal.far,
        start_new_session=True,
        preexec_fn=lambda: _control(terminal.far),  # noqa: PLW1509
    )
    begun = tmp_path / "studies" / "plain" / "trials" / "0000" / "0" / "job.json"
    assert wait_until(begun.exists, seconds=60), terminal.so_far
    assert wait_until(lambda: "baseline" in terminal.so_far, seconds=10)
    terminal.type("\x03")
    assert search.wait(timeout=60) == INTERRUPTED
    assert terminal.settings == before
    assert nobody_is_left(tmp_path)
    text = terminal.seen()
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)
    assert "To continue:" in text
    assert "Traceback" not in text


def _control(descriptor):
    """Make the terminal the one whose Ctrl-C reaches this process."""
    import fcntl
    import termios

    signal.signal(signal.SIGINT, signal.default_int_handler)
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
