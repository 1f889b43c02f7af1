"""The strict YAML reader accepts settings files and refuses others with positions."""

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autotune.values.errors import UsageError
from autotune.values.strict_yaml import MAX_BYTES, MAX_DEPTH, dump, parse, read
from covering import covers


def only_problem(text):
    with pytest.raises(UsageError) as caught:
        parse(text, "f.yaml")
    (line,) = str(caught.value).splitlines()
    return line


def typed(value):
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
def test_a_plain_word_that_only_yaml_1_1_converts_stays_text(text):
    assert parse(f"a: {text}", "f").value == {"a": text}


@covers("C4")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("true", True), ("False", False), ("null", None), ("~", None), ("", None), ("3", 3)),
        *(("-3", -3), ("010", 10), ("0x10", 16), ("0o20", 16), ("1e-3", 0.001), ("1.5E3", 1500.0)),
        *((".5", 0.5), ("1.", 1.0), ("'1'", "1"), ('"true"', "true"), ("|\n  1", "1")),
    ],
)
def test_a_scalar_follows_the_core_schema_of_yaml_1_2(text, expected):
    assert typed(parse(f"a: {text}", "f").value["a"]) == typed(expected)


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "1e999", "9" * 5000, "0x" + "f" * 9000])
def test_a_number_that_is_not_finite_or_is_too_long_is_refused(text):
    line = only_problem(f"a: {text}")
    assert line.startswith("f.yaml:1:4: number '")
    assert "is not finite or too long" in line


def test_infinity_in_quotes_is_text():
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
def test_a_position_is_that_of_the_value(place, position):
    assert parse(NESTED, "f").position(*place) == position


def test_a_missing_position_is_its_parents_and_a_key_has_its_own():
    document = parse(NESTED, "f")
    assert document.position("settings", "batch_size", 9, "x") == "f:4:5"
    assert document.key_position("settings", "batch_size") == "f:3:3"
    assert document.key_position("settings", "batch_size", 0) == "f:4:7"


# What is refused


@covers("C5", "C8")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1: duplicate key 'a' (first on line 1)."),
        ("s:\n  a: 1\n  'a': 2\n", "3:3: duplicate key 'a' (first on line 2)."),
        ("a: *x", "1:4: an anchor, an alias or a tag."),
        ("&x a: 1", "1:1: an anchor, an alias or a tag."),
        ("a: !!python/object/apply:os.system [ls]", "1:4: an anchor, an alias or a tag."),
        ("a: ! 1", "1:4: an anchor, an alias or a tag."),
        ("[a]: 1", "1:1: a key that is not text."),
        ("a: 1\n---\nb: 1", "2:1: a second document."),
        ("", "1:1: the top level is empty."),
        ("# only a comment\n", "2:1: the top level is empty."),
        ("- 1", "1:1: the top level is [1]."),
        ("word", "1:1: the top level is 'word'."),
        ("a:\n\tb: 1", "2:1: not valid YAML: found character"),
        ("a: b: c", "1:5: not valid YAML: mapping values are not allowed here."),
        ("a:\n  - 'x", "2:7: not valid YAML: found unexpected end of stream"),
        ("a: @x", "1:4: not valid YAML: found character '@'"),
        ("a: 1\nb: x\0y", "2:5: not valid YAML: character U+0000."),
        ('a: "\\UFFFFFFFF"', "1:1: not valid YAML: the number of a character"),
    ],
)
def test_syntax_that_a_settings_file_does_not_need_is_refused_with_its_position(text, expected):
    assert only_problem(text).startswith(f"f.yaml:{expected}")


@covers("C9")
def test_a_key_is_text_as_it_is_written():
    text = "1: a\nnull: b\n'no': c\n<<: d\n"
    assert parse(text, "f").value == {"1": "a", "null": "b", "no": "c", "<<": "d"}


def test_nesting_up_to_the_limit_is_read():
    lists = MAX_DEPTH - 1
    assert parse("a: " + "[" * lists + "]" * lists, "f").position() == "f:1:1"


def test_nesting_beyond_the_limit_is_refused_where_it_begins():
    line = only_problem("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert line.startswith("f.yaml:1:23: nested deeper than 20 levels.")


@covers("C7")
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "[\n"])
def test_absurd_nesting_is_refused_without_going_through_it(opening):
    deep = opening * 5000
    assert "nested deeper than 20 levels" in only_problem(deep)


# Files


@covers("C5")
@pytest.mark.parametrize("content", [b"\xef\xbb\xbfa: 1\n", b"a: 1\r\n", "a: 1 # é".encode()])
def test_a_file_with_a_byte_order_mark_or_windows_line_ends_is_read(tmp_path, content):
    (tmp_path / "f.yaml").write_bytes(content)
    assert read(tmp_path / "f.yaml").value == {"a": 1}


def test_positions_in_a_file_name_the_path_as_given(tmp_path):
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
        ("a: 1".encode("utf-16-le"), ":1:2: not valid YAML: character U+0000."),
        (b"a: " + b"x" * MAX_BYTES, ": larger than 64 kB"),
    ],
)
def test_a_file_that_is_no_small_utf_8_text_is_refused(tmp_path, content, message):
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
def test_a_path_that_cannot_be_read_is_refused_with_the_reason(tmp_path, name, reason):
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
def test_a_dump_is_read_back_alike_here_and_by_yaml_1_1(data):
    text = dump(data)
    assert typed(parse(text, "f").value) == typed(data)
    assert typed(yaml.safe_load(text)) == typed(data)


def test_a_dump_keeps_the_order_of_keys_and_repeats_shared_objects():
    shared = [1, 2]
    text = "b: é\na: [1, 2]\nc: [1, 2]\n"
    assert dump({"b": "é", "a": shared, "c": shared}) == text


def test_a_long_line_is_not_folded():
    assert dump({"a": "word " * 100 + "end"}).count("\n") == 1


# Any text

YAML_TEXT = st.text() | st.lists(
    st.sampled_from([*"ab1:-?,[]{}&*!|>'\"%@#~.\\ \n\t\r\0", ": ", "- ", "\n  ", "---\n", "<<: "]),
    max_size=40,
).map("".join)


@given(YAML_TEXT)
@settings(deadline=None, max_examples=500)
def test_any_text_is_read_or_refused_with_positions_and_never_ends_otherwise(text):
    try:
        outcome = parse(text, "f")
    except UsageError as error:
        outcome = error
    lines = str(outcome).splitlines() if isinstance(outcome, UsageError) else ["f:"]
    assert all(line.startswith("f:") for line in lines)
