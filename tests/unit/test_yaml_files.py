"""Files of YAML are read as small UTF-8 text, or refused with path and position."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.values.errors import UsageError
from autotune.values.strict_yaml import MAX_BYTES, read
from covering import covers


@covers("C5")
@pytest.mark.parametrize("content", [b"\xef\xbb\xbfa: 1\n", b"a: 1\r\n", "a: 1 # é".encode()])
def test_a_file_with_a_byte_order_mark_or_windows_line_ends_is_read(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "f.yaml").write_bytes(content)
    assert read(tmp_path / "f.yaml").value == {"a": 1}


def test_positions_in_a_file_name_the_path_as_given(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("a: 1\n")
    assert read(file).position("a") == f"{file}:1:4"


@covers("C5")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: 1".encode("utf-16"), ":1:1: byte 0xff is not UTF-8."),
        ("a: é".encode("latin-1"), ":1:4: byte 0xe9 is not UTF-8."),
        ("é: 1\nb: \xff".encode()[:-1], ":2:4: byte 0xc3 is not UTF-8."),
        ("a: 1".encode("utf-16-le"), ":1:2: character U+0000 is not allowed."),
        (b"a: " + b"x" * MAX_BYTES, ": larger than 64 kB"),
    ],
)
def test_a_file_that_is_no_small_utf_8_text_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}{message}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.yaml", "No such file or directory"),
        (".", "Is a directory"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_path_that_cannot_be_read_is_refused_with_the_reason(
    tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=rf"cannot be read \({reason}\)"):
        read(tmp_path / name)
