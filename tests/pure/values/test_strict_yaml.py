"""The strict YAML reader accepts settings files and refuses others with positions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autotune.values.errors import UsageError
from autotune.values.strict_yaml import MAX_BYTES, MAX_DEPTH, MAX_NODES, dump, parse, read
from covering import covers


def problems(text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        parse(text, "f.yaml")
    return str(caught.value).splitlines()


def only_problem(text: str) -> str:
    (line,) = problems(text)
    return line


def typed(value: object) -> object:
    """The value with the type of each scalar beside it, so that 1, 1.0 and True differ."""
    match value:
        case dict():
            return {key: typed(item) for key, item in value.items()}
        case list():
            return [typed(item) for item in value]
    return type(value).__name__, value


# Scalars


@covers("C3")
@pytest.mark.parametrize(
    "text",
    ["no", "yes", "on", "off", "y", "n", "12:30", "2024-01-01", "1_000", "0b1", "=", "tRue", "1e"],
)
def test_a_plain_word_that_only_yaml_1_1_converts_stays_text(text: str) -> None:
    assert parse(f"a: {text}", "f").value == {"a": text}


@covers("C4")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("3", 3),
        ("-3", -3),
        ("010", 10),
        ("0x10", 16),
        ("0o20", 16),
        ("1e-3", 0.001),
        ("1.5E3", 1500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("'1'", "1"),
        ('"true"', "true"),
        ("|\n  1", "1"),
    ],
)
def test_a_scalar_follows_the_core_schema_of_yaml_1_2(text: str, expected: object) -> None:
    assert typed(parse(f"a: {text}", "f").value["a"]) == typed(expected)


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "1e999", "9" * 5000, "0x" + "f" * 9000])
def test_a_number_that_is_not_finite_or_is_too_long_is_refused(text: str) -> None:
    line = only_problem(f"a: {text}")
    assert line.startswith("f.yaml:1:4: number '")
    assert "is not finite or too long" in line


def test_infinity_in_quotes_is_text() -> None:
    assert parse("a: '.inf'", "f").value == {"a": ".inf"}


# Positions

NESTED = "settings:\n  amp: off\n  batch_size:\n    - 16\n    - 32\nflow: {a: [1, 2]}\n"


@pytest.mark.parametrize(
    ("place", "position"),
    [
        ((), "f:1:1"),
        (("settings",), "f:2:3"),
        (("settings", "amp"), "f:2:8"),
        (("settings", "batch_size", 1), "f:5:7"),
        (("flow", "a", 0), "f:6:12"),
    ],
)
def test_a_position_is_that_of_the_value(place: tuple[str | int, ...], position: str) -> None:
    assert parse(NESTED, "f").position(*place) == position


def test_a_position_that_is_not_in_the_file_is_that_of_its_nearest_parent() -> None:
    assert parse(NESTED, "f").position("settings", "batch_size", 9, "x") == "f:4:5"


def test_a_key_position_is_that_of_the_key() -> None:
    assert parse(NESTED, "f").key_position("settings", "batch_size") == "f:3:3"


def test_a_list_item_has_no_key_so_its_key_position_is_its_own() -> None:
    assert parse(NESTED, "f").key_position("settings", "batch_size", 0) == "f:4:7"


def test_lines_are_counted_alike_with_windows_line_ends() -> None:
    assert parse("a: 1\r\nb: 2\r\n", "f").position("b") == "f:2:4"


def test_a_byte_order_mark_does_not_move_the_first_column() -> None:
    assert parse("\ufeffa: 1", "f").position("a") == "f:1:4"


def test_a_document_cannot_be_rebound() -> None:
    with pytest.raises(AttributeError):
        parse("a: 1", "f").name = "g"  # type: ignore[misc]


# What is refused


@covers("C5", "C8")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1: duplicate key 'a' (first on line 1)."),
        ("s:\n  a: 1\n  'a': 2\n", "3:3: duplicate key 'a' (first on line 2)."),
        ("a: *x", "1:4: alias '*x'."),
        ("*x : 1", "1:1: alias '*x'."),
        ("a: &x 1", "1:4: anchor '&x'."),
        ("&x a: 1", "1:1: anchor '&x'."),
        (
            "a: !!python/object/apply:os.system [ls]",
            "1:4: tag 'tag:yaml.org,2002:python/object/apply:os.system'.",
        ),
        ("a: !mine 1", "1:4: tag '!mine'."),
        ("a: ! 1", "1:4: tag '!'."),
        ("!!map {a: 1}", "1:1: tag 'tag:yaml.org,2002:map'."),
        ("[a]: 1", "1:1: a key that is not text."),
        ("a: 1\n---\nb: 1", "2:1: a second document."),
        ("%YAML 1.1\n---\na: 1", "1:1: a % directive."),
        ("", "1:1: the top level is empty."),
        ("# only a comment\n", "1:1: the top level is empty."),
        ("- 1", "1:1: the top level is [1]."),
        ("word", "1:1: the top level is 'word'."),
        ("a:\n\tb: 1", "2:1: a tab where only spaces are allowed."),
        ("a: b: c", "1:5: not valid YAML: mapping values are not allowed here."),
        ("a:\n  - 'x", "2:7: not valid YAML: found unexpected end of stream"),
        ("a: @x", "1:4: not valid YAML: found character '@'"),
        ("a: 1\nb: x\0y", "2:5: character U+0000 is not allowed."),
        ('a: "\\U00110000"', "1:7: not valid YAML: the number of a character"),
        ('a: "\\UFFFFFFFF"', "1:7: not valid YAML: the number of a character"),
    ],
)
def test_syntax_that_a_settings_file_does_not_need_is_refused_with_its_position(
    text: str, expected: str
) -> None:
    assert only_problem(text).startswith(f"f.yaml:{expected}")


@covers("C9")
def test_a_key_is_text_as_it_is_written() -> None:
    text = "1: a\nnull: b\n'no': c\n<<: d\n"
    assert parse(text, "f").value == {"1": "a", "null": "b", "no": "c", "<<": "d"}


def test_all_problems_are_told_at_once() -> None:
    assert problems("a: &x 1\nb: *x\na: !t 2\n[3]: .inf\n") == [
        "f.yaml:1:4: anchor '&x'. Remove it.",
        "f.yaml:2:4: alias '*x'. Write the value out instead.",
        "f.yaml:3:1: duplicate key 'a' (first on line 1). Keep only one.",
        "f.yaml:3:4: tag '!t'. Remove it.",
        "f.yaml:4:1: a key that is not text. Write a name.",
        "f.yaml:4:6: number '.inf' is not finite or too long. Write another.",
    ]


def test_a_syntax_error_comes_after_the_labels_before_it() -> None:
    assert problems("a: &x 1\nc: @\n") == [
        "f.yaml:1:4: anchor '&x'. Remove it.",
        "f.yaml:2:4: not valid YAML: found character '@' that cannot start any token. "
        "Correct the text there, or put it in quotes.",
    ]


def test_only_the_first_of_very_many_problems_are_shown() -> None:
    lines = problems("a: [" + "*x, " * 1000 + "]")
    assert len(lines) == 51
    assert lines[-1] == "f.yaml: 950 more problems. Correct those above first."


def test_nesting_up_to_the_limit_is_read() -> None:
    lists = MAX_DEPTH - 1
    assert parse("a: " + "[" * lists + "]" * lists, "f").position() == "f:1:1"


def test_nesting_beyond_the_limit_is_refused_where_it_begins() -> None:
    line = only_problem("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert line.startswith("f.yaml:1:23: nested deeper than 20 levels.")


@covers("C7")
@pytest.mark.parametrize("opening", ["[", "{", "- ", "[\n"])
def test_absurd_nesting_is_refused_without_going_through_it(opening: str) -> None:
    deep = opening * 5000
    assert "nested deeper than 20 levels" in problems(deep)[-1]
    assert calls_while_reading(deep * 2) <= calls_while_reading(deep) + 10


def calls_while_reading(text: str) -> int:
    """Calls of Python functions until a text is refused: unlike seconds, always as many."""
    count = 0

    def counted(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        problems(text)
    finally:
        sys.setprofile(before)
    return count


def test_more_values_than_a_settings_file_has_are_refused_where_they_begin() -> None:
    most = ", ".join("1" * (MAX_NODES - 3))  # the mapping, its key and the list count as well
    assert len(parse(f"a: [{most}]", "f").value["a"]) == MAX_NODES - 3
    line = only_problem(f"a: [{most},\n  2]")
    assert line == f"f.yaml:2:3: more than {MAX_NODES} keys and values. Shorten the file."


def test_aliases_that_would_expand_without_end_are_refused() -> None:
    laughs = "a: &a [x]\n" + "".join(f"a{i}: &a{i} [{'*a, ' * 9}]\n" for i in range(3))
    assert len(problems(laughs)) == 31


# Files


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


# Writing

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.sampled_from(["no", "1e-3", "12:30", "null", "", "~", "<<", "=", ".inf", "0o7", "1_0", "-"]),
)
JSON_LIKE = st.dictionaries(
    st.text() | st.sampled_from(["no", "1", "<<", "null", "=", "?"]),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(JSON_LIKE)
@example({"a": 1e-05, "b": 1e16, "c": -0.0, "d": 1.5e300})
@example({"a": "x\n", "b": "\n x", "c": " x ", "d": "\ufeff", "e": "\x85", "f": "\u2028", "\n": 1})
@settings(deadline=None)
def test_a_dump_is_read_back_alike_here_and_by_yaml_1_1(data: dict[str, Any]) -> None:
    text = dump(data)
    assert typed(parse(text, "f").value) == typed(data)
    assert typed(yaml.safe_load(text)) == typed(data)


def test_a_dump_keeps_the_order_of_keys_and_repeats_shared_objects() -> None:
    shared = [1, 2]
    text = "b: é\na: [1, 2]\nc: [1, 2]\n"
    assert dump({"b": "é", "a": shared, "c": shared}) == text


def test_a_long_line_is_not_folded() -> None:
    assert dump({"a": "word " * 100 + "end"}).count("\n") == 1


def test_a_number_that_is_not_finite_is_not_dumped() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump({"a": [float("inf")]})


# Any text

YAML_TEXT = st.text() | st.lists(
    st.sampled_from([*"ab1:-?,[]{}&*!|>'\"%@#~.\\ \n\t\r\0", ": ", "- ", "\n  ", "---\n", "<<: "]),
    max_size=40,
).map("".join)


@given(YAML_TEXT)
@settings(deadline=2000, max_examples=500)
def test_any_text_is_read_or_refused_with_positions_and_never_ends_otherwise(text: str) -> None:
    try:
        outcome: object = parse(text, "f")
    except UsageError as error:
        outcome = error
    lines = str(outcome).splitlines() if isinstance(outcome, UsageError) else ["f:"]
    assert all(line.startswith("f:") for line in lines)
