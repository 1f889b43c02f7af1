"""Values of options as people type them are read, or refused with an example."""

import re

import click
import pytest

from autotune.commands.common import duration, memory, settings, tolerance
from autotune.commands.compare import compare
from autotune.commands.profile import profile
from autotune.commands.search import search
from autotune.configuration.constraints import Tolerance
from autotune.values.text import folder_name
from command_line import command
from covering import covers


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), (90, 90), (0.5, 0.5)]
)
def test_a_duration_is_read_in_its_unit(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("16GB", 16 * 10**9),
        ("16 GB", 16 * 10**9),
        ("16gb", 16 * 10**9),
        ("16G", 16 * 10**9),
        (".5TB", 5 * 10**11),
        ("16GiB", 16 << 30),
        ("1.5 GiB", 3 << 29),
        ("512MiB", 512 << 20),
        ("7", 7),
        (2 << 30, 2 << 30),
    ],
)
def test_a_size_is_read_in_the_unit_that_it_names(text, count):
    assert memory(text) == count


NO_SIZES = ["-1", "-16GB", "0", "0GB", "0.5B", "16,5GB", "1.5.2GB", "16 GB 2", "16Gbit", "16Gi"]


@pytest.mark.parametrize("text", [*NO_SIZES, "GB", "", "nan", "1e9", "9" * 400 + "GB", True])
def test_a_text_that_is_no_size_above_zero_is_named_with_an_example(text):
    with pytest.raises(click.BadParameter) as raised:
        memory(text)
    assert raised.value.message.startswith(f"{text!r} is not an amount of memory; write 16GB")


@pytest.mark.parametrize(
    ("text", "limit"), [("92%", 0.92), (0.92, 0.92), ("16GB", 16 * 10**9), (7, 7)]
)
def test_a_limit_of_memory_is_a_share_or_a_size(text, limit):
    read = memory(text)
    assert (type(read), read) == (type(limit), pytest.approx(limit))


def test_a_tolerance_with_percent_is_relative_and_without_it_absolute():
    assert tolerance("2%") == Tolerance(0.02, relative=True)
    assert tolerance("0.02") == Tolerance(0.02, relative=False)


def test_settings_are_read_with_the_spelling_of_yaml():
    found = settings("batch_size=64, amp_dtype=null,channels_last=true")
    assert found == {"batch_size": 64, "amp_dtype": None, "channels_last": True}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((duration, "10"), (duration, "0s"), (duration, "ten minutes"), (duration, True)),
        *((duration, -1.0), (memory, "101%"), (memory, "-1%"), (tolerance, "nan")),
        (settings, "batch_size"),
    ],
)
def test_a_text_that_cannot_be_read_is_named_with_an_example(kind, text):
    with pytest.raises(click.BadParameter, match=r"write|is not"):
        kind(text)


def test_every_wrong_setting_is_named_at_once():
    with pytest.raises(click.BadParameter) as raised:
        settings("batchsize=64,num_workers=-1")
    assert "Did you mean 'batch_size'?" in raised.value.message
    assert "num_workers=-1" in raised.value.message


def test_a_plain_study_name_is_its_own_folder():
    assert folder_name("digits_cnn-2.1") == "digits_cnn-2.1"


@covers("X1")
@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "a/b", "", ".hidden", "-rf", "x" * 300, "a\x00b", "ünï\ncode", ".."],
)
def test_any_other_study_name_becomes_one_safe_folder_name(name):
    folder = folder_name(name)
    assert len(folder) <= 64
    assert all(letter.isascii() and (letter.isalnum() or letter in "-_.") for letter in folder)
    assert folder[0].isalnum()


def test_different_study_names_never_share_a_folder():
    assert folder_name("a/b") != folder_name("a:b")


@pytest.mark.parametrize("of", [search, compare, profile], ids=lambda of: of.name)
def test_the_help_of_a_command_has_each_option_once_in_a_section(of):
    told = command(of.name, "--help").out
    options = [one for one in of.params if isinstance(one, click.Option)]
    for one in options:
        assert len(re.findall(rf"\n  (?:-\w, )?{one.opts[-1]}\b", told)) == 1, one.name
    titles = [told.index(f"\n{title}:\n") for title in of.sections]
    assert titles == sorted(titles)
    for title, begin, end in zip(of.sections, titles, [*titles[1:], None], strict=True):
        for one in of.sections[title]:
            assert re.search(rf"\n  (?:-\w, )?{one.opts[-1]}\b", told[begin:end]), one.name


@pytest.mark.parametrize("of", [search, compare], ids=lambda of: of.name)
def test_the_front_page_has_the_options_that_most_people_need(of):
    told = command(of.name, "-h").out
    assert told.count("\n  -") == len(of.front)
    assert told.endswith(f"autotune {of.name} --help\n")
    assert len(told) < len(command(of.name, "--help").out) / 2


def test_without_a_front_page_both_helps_are_one():
    assert command("profile", "-h").out == command("profile", "--help").out


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("--only", "--exact-only"),
        ("--launch", "--launcher"),
        ("--run-epochs", "--target-epochs"),
        ("--memory-headroom", "--memory-limit"),
        ("--devices", "--device"),
        ("--nproc_per_node", "--nproc-per-node"),
    ],
)
def test_an_option_of_another_spelling_is_answered_with_the_right_one(word, option):
    done = command("search", "model.py", word, "2")
    assert (done.code, f"No such option {word!r}." in done.err) == (2, True)
    assert option in done.err.partition("Did you mean ")[2].partition("?")[0].split()
