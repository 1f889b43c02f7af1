"""Files of a trial's folder and its logs: written whole, private, cut where they are long."""

import os

import pytest

from autotune.process import children
from autotune.process.common.trial_folder import write_atomically
from covering import covers


def test_a_file_is_written_with_the_folders_it_needs(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, "ü\n")
    assert path.read_bytes() == "ü\n".encode()


def test_a_reader_that_has_the_old_file_open_keeps_the_old_text(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with path.open() as reader:
        write_atomically(path, "new")
        assert reader.read() == "old"


def test_a_failed_write_leaves_what_was_there_and_nothing_beside_it(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half of it \ud800")  # a lone surrogate cannot be encoded
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="file"):
        write_atomically(path, "text")
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_may_be_read_by_whom_the_umask_allows(tmp_path):
    path = tmp_path / "file"
    before = os.umask(0o022)
    try:
        write_atomically(path, "text")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


HALF = 100
KEPT = 2 * HALF


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(children, "_HALF", HALF)
    monkeypatch.setattr(children, "MOST_BYTES", KEPT)


LINE = b"\n... autotune left out the middle ...\n"


def test_a_log_that_fits_stays_as_it_is(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"x" * KEPT)
    children.shorten(log)
    assert log.read_bytes() == b"x" * KEPT
    children.shorten(tmp_path / "nowhere")


@covers("T15")
@pytest.mark.parametrize("more", [[], [HALF], [KEPT + 1], [50, 70, 1000, 60]])
def test_both_ends_are_kept_however_often_a_log_is_cut(more, tmp_path):
    log, printed = tmp_path / "log", bytes(range(65, 91)) * 40
    log.write_bytes(printed)
    children.shorten(log)
    for number, length in enumerate(more):
        addition = bytes([48 + number]) * length
        printed += addition
        with log.open("ab") as file:
            file.write(addition)
        children.shorten(log)
    assert log.read_bytes() == printed[:HALF] + LINE + printed[-HALF:]
    children.shorten(log)
    assert log.read_bytes() == printed[:HALF] + LINE + printed[-HALF:]


def test_a_log_that_is_written_meanwhile_takes_little_space_and_is_cut_in_the_end(tmp_path):
    log = tmp_path / "log"
    with log.open("ab") as child:
        for _ in range(50):
            child.write(b"y" * 3 * KEPT)
            child.flush()
            children.shorten(log, 4 * KEPT)
            assert log.stat().st_size <= 4 * KEPT + 100, "with the line that tells"
    children.shorten(log)
    assert log.read_bytes() == b"y" * HALF + LINE + b"y" * HALF
