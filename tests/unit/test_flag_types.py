"""What people type on the command line."""

from __future__ import annotations

import click
import pytest

from autotune.configuration.constraints import Tolerance
from autotune.configuration.flag_types import (
    Duration,
    SettingsType,
    Share,
    Size,
    ToleranceType,
    folder_name,
)
from covering import covers


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_a_duration_is_read_in_its_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize(("text", "count"), [("2GiB", 2 << 30), ("512MiB", 512 << 20), ("7", 7)])
def test_a_size_is_read_in_binary_units(text: str, count: int) -> None:
    assert Size().convert(text, None, None) == count


@pytest.mark.parametrize(("text", "share"), [("8%", 0.08), ("0.08", 0.08), ("0", 0.0)])
def test_a_share_is_read_with_or_without_percent(text: str, share: float) -> None:
    assert Share().convert(text, None, None) == pytest.approx(share)


def test_a_tolerance_with_percent_is_relative_and_without_it_absolute() -> None:
    assert ToleranceType().convert("2%", None, None) == Tolerance(0.02, relative=True)
    assert ToleranceType().convert("0.02", None, None) == Tolerance(0.02, relative=False)


def test_settings_are_read_with_the_spelling_of_yaml() -> None:
    settings = SettingsType().convert(
        "batch_size=64, amp_dtype=null,channels_last=true", None, None
    )
    assert settings == {"batch_size": 64, "amp_dtype": None, "channels_last": True}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Duration(), "10"),
        (Duration(), "0s"),
        (Duration(), "ten minutes"),
        (Size(), "2GB"),
        (Size(), "-1"),
        (Share(), "100%"),
        (Share(), "-1%"),
        (ToleranceType(), "nan"),
        (SettingsType(), "batch_size"),
    ],
)
def test_what_cannot_be_read_is_named_with_an_example(
    kind: click.ParamType[object], text: str
) -> None:
    with pytest.raises(click.BadParameter, match=r"write|is not"):
        kind.convert(text, None, None)


def test_every_wrong_setting_is_named_at_once() -> None:
    with pytest.raises(click.BadParameter) as raised:
        SettingsType().convert("batchsize=64,num_workers=-1", None, None)
    assert "Did you mean 'batch_size'?" in raised.value.message
    assert "num_workers=-1" in raised.value.message


def test_a_plain_study_name_is_its_own_folder() -> None:
    assert folder_name("digits_cnn-2.1") == "digits_cnn-2.1"


@covers("X1")
@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "a/b", "", ".hidden", "-rf", "x" * 300, "a\x00b", "ünï\ncode", ".."],
)
def test_any_other_study_name_becomes_one_safe_folder_name(name: str) -> None:
    folder = folder_name(name)
    assert len(folder) <= 64
    assert all(letter.isascii() and (letter.isalnum() or letter in "-_.") for letter in folder)
    assert folder[0].isalnum()


def test_different_study_names_never_share_a_folder() -> None:
    assert folder_name("a/b") != folder_name("a:b")
