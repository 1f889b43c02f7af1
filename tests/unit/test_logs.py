"""Both ends of a long log are kept, with the right count of what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.processes import logs
from covering import covers

HALF = 100
KEPT = 2 * HALF


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_HALF", HALF)
    monkeypatch.setattr(logs, "MOST_BYTES", KEPT)
    monkeypatch.setattr(logs, "_MOST_BYTES_MEANWHILE", 4 * KEPT)


def line(left_out: int) -> bytes:
    return b"\n... autotune left out %d bytes ...\n" % left_out


def test_a_log_that_fits_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * KEPT)
    logs.shorten(log)
    assert log.read_bytes() == b"x" * KEPT
    logs.shorten(tmp_path / "nowhere")


@covers("T15")
@pytest.mark.parametrize("more", [[], [1], [HALF], [KEPT + 1], [5, 7, 1000, 3]])
def test_the_bytes_left_out_in_all_are_told_after_every_cut(
    more: list[int], tmp_path: Path
) -> None:
    log, printed = tmp_path / "log", bytes(range(65, 91)) * 40
    log.write_bytes(printed)
    logs.shorten(log)
    for number, length in enumerate(more):
        addition = bytes([48 + number]) * length
        printed += addition
        with log.open("ab") as file:
            file.write(addition)
        logs.shorten(log)
    assert log.read_bytes() == printed[:HALF] + line(len(printed) - KEPT) + printed[-HALF:]
    logs.shorten(log)
    assert log.read_bytes() == printed[:HALF] + line(len(printed) - KEPT) + printed[-HALF:]


def test_a_log_that_is_written_meanwhile_may_be_longer_and_is_cut_in_the_end(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    with log.open("ab") as child:
        for _ in range(50):
            child.write(b"y" * 90)
            child.flush()
            logs.hold_down(log)
            assert log.stat().st_size <= 4 * KEPT + 90
    logs.shorten(log)
    assert log.read_bytes() == b"y" * HALF + line(50 * 90 - KEPT) + b"y" * HALF
