"""Both ends of a long log are kept, with the right count of what is missing."""

import pytest

from autotune.process import children
from covering import covers

HALF = 100
KEPT = 2 * HALF


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(children, "_HALF", HALF)
    monkeypatch.setattr(children, "MOST_BYTES", KEPT)


def line(left_out):
    return b"\n... autotune left out %d bytes ...\n" % left_out


def test_a_log_that_fits_stays_as_it_is(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"x" * KEPT)
    children.shorten(log)
    assert log.read_bytes() == b"x" * KEPT
    children.shorten(tmp_path / "nowhere")


@covers("T15")
@pytest.mark.parametrize("more", [[], [1], [HALF], [KEPT + 1], [5, 7, 1000, 3]])
def test_the_bytes_left_out_in_all_are_told_after_every_cut(more, tmp_path):
    log, printed = tmp_path / "log", bytes(range(65, 91)) * 40
    log.write_bytes(printed)
    children.shorten(log)
    for number, length in enumerate(more):
        addition = bytes([48 + number]) * length
        printed += addition
        with log.open("ab") as file:
            file.write(addition)
        children.shorten(log)
    assert log.read_bytes() == printed[:HALF] + line(len(printed) - KEPT) + printed[-HALF:]
    children.shorten(log)
    assert log.read_bytes() == printed[:HALF] + line(len(printed) - KEPT) + printed[-HALF:]


def test_a_log_that_is_written_meanwhile_takes_little_space_and_is_cut_in_the_end(tmp_path):
    log = tmp_path / "log"
    with log.open("ab") as child:
        for _ in range(50):
            child.write(b"y" * 3 * KEPT)
            child.flush()
            children.shorten(log, 4 * KEPT)
            assert log.stat().st_size <= 4 * KEPT + 100, "with the line that tells"
    children.shorten(log)
    assert log.read_bytes() == b"y" * HALF + line(150 * KEPT - KEPT) + b"y" * HALF
