"""Both ends of a long log are kept, with the right count of what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.process import children
from covering import covers

HALF = 100
KEPT = 2 * HALF


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_HALF", HALF)
    monkeypatch.setattr(children, "MOST_BYTES", KEPT)
    monkeypatch.setattr(children, "_MOST_BYTES_MEANWHILE", 4 * KEPT)


def line(left_out: int) -> bytes:
    return b"\n... autotune left out %d bytes ...\n" % left_out


def test_a_log_that_fits_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * KEPT)
    children.shorten(log)
    assert log.read_bytes() == b"x" * KEPT
    children.shorten(tmp_path / "nowhere")


@covers("T15")
@pytest.mark.parametrize("more", [[], [1], [HALF], [KEPT + 1], [5, 7, 1000, 3]])
def test_the_bytes_left_out_in_all_are_told_after_every_cut(
    more: list[int], tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("can_free", [True, False])
def test_a_log_that_is_written_meanwhile_takes_little_space_and_is_cut_in_the_end(
    can_free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half, most = 50_000, 400_000
    monkeypatch.setattr(children, "_HALF", half)
    monkeypatch.setattr(children, "MOST_BYTES", 2 * half)
    monkeypatch.setattr(children, "_MOST_BYTES_MEANWHILE", most)
    if not can_free:
        monkeypatch.setattr(children, "_free_middle", lambda _: False)
    log = tmp_path / "log"
    with log.open("ab") as child:
        for _ in range(50):
            child.write(b"y" * 90_000)
            child.flush()
            children.hold_down(log)
            assert 512 * log.stat().st_blocks <= most + 100_000
    children.shorten(log)
    assert log.read_bytes() == b"y" * half + line(50 * 90_000 - 2 * half) + b"y" * half


def test_no_line_that_is_printed_while_space_is_given_back_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = 50_000
    monkeypatch.setattr(children, "_HALF", half)
    monkeypatch.setattr(children, "_MOST_BYTES_MEANWHILE", 3 * half)
    code = "import os\nfor number in range(100_000): os.write(1, b'%d\\n' % number)"
    log = tmp_path / "log"
    with log.open("ab") as out, subprocess.Popen([sys.executable, "-c", code], stdout=out) as child:
        while child.poll() is None:
            children.hold_down(log)
    children.shorten(log)
    _, _, _, *end = log.read_bytes()[half:].split(b"\n")
    numbers = [int(number) for number in end[:-1]]
    assert len(numbers) > half / 10
    assert numbers == list(range(numbers[0], 100_000))
