"""Change one key in a copy of a YAML or JSON file that a script is given.

In YAML, comments, tags, anchors and the spelling of other values stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from autotune.calling.arguments import config_files
from autotune.calling.flag import Flag, given
from autotune.knobs.base import Value, spelled
from autotune.values.errors import UsageError
from autotune.values.text import did_you_mean

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_BYTES = 100_000
"""Size from which a file counts as data; config files are smaller."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A key of a config file with the value that a copy of the file gets."""

    word: str
    """The flag before the file's name among the arguments, or that name itself."""
    key: str
    """Keys from the outermost to the innermost, joined by dots; numbers count entries of lists."""
    value: Value


def edits_of(flags: Sequence[Flag], settings: dict[str, Value]) -> tuple[Edit, ...]:
    """Return the changes of config files that carry settings."""
    return tuple(
        Edit(*flag.file_key, settings[flag.knob])
        for flag in flags
        if flag.file_key and flag.carries(settings[flag.knob])
    )


def check_files(flags: Sequence[Flag], arguments: Sequence[str]) -> Iterator[str]:
    """Yield the faults of maps to config files: no file, no such key."""
    for flag in flags:
        if flag.file_key is not None:
            word, key = flag.file_key
            try:
                _changed(_file(word, arguments), key, None)
            except UsageError as error:
                yield f"--map {flag.knob}={flag.name}: {error}"


def with_copies(arguments: Sequence[str], edits: Sequence[Edit], folder: Path) -> tuple[str, ...]:
    """Return the arguments with changed copies in place of the files, written below `folder`.

    A file that already has all the values is not copied, because scripts may look for files beside
    it.

    Raises:
        UsageError: a file cannot be read, or has no such key.
        OSError: a copy cannot be written.
    """
    words = list(arguments)
    copies: dict[Path, Path] = {}
    lacking = {_file(edit.word, arguments) for edit in edits if not _is_there(edit, arguments)}
    for edit in edits:
        path = _file(edit.word, arguments)
        if path not in lacking:
            continue
        copy = copies.get(path)
        if copy is None:
            copy = copies[path] = Path(mkdtemp(prefix="config-", dir=folder)) / path.name
            copy.write_bytes(path.read_bytes())
        pairs = _pairs(words)
        words = [_renamed(word, before, edit.word, (path, copy)) for word, before in pairs]
        copy.write_text(_changed(copy, edit.key, edit.value), encoding="utf-8")
    return tuple(words)


def whole_numbers(arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each key with a whole number in the config files among arguments, as a map spells it.

    Places of results are left out, and files and keys that no map can name, such as the first of
    two files that the same flag takes.
    """
    read = {path for path in config_files(arguments) if path.suffix in _SUFFIXES}
    for word, before in _pairs(arguments):
        name, equals, value = word.partition("=")
        way = name if equals else before if before and before.startswith("-") else word
        path = Path(value if equals else word)
        if path in read:
            with suppress(OSError, UsageError):
                yield from _ways(way, path, arguments)


def _ways(way: str, path: Path, arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    if path.stat().st_size >= _MOST_BYTES or _file(way, arguments) != path:
        return
    for key, holder, part in _scalars(_content(path)):
        number = holder[part]
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if is_whole and Flag("batch_size", f"{way}:{key}").file_key == (way, key):
            yield f"{way}:{key}", int(number)


def _is_there(edit: Edit, arguments: Sequence[str]) -> bool:
    """Return whether the file has the value already.

    Raises:
        UsageError: it cannot be read, or has no such key.
    """
    path = _file(edit.word, arguments)
    content = _content(path)
    holder, last = _found(path, content, edit.key)
    return spelled(holder[last]) == spelled(edit.value)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each word with the one before it."""
    yield from zip(words, (None, *words), strict=False)


def _renamed(word: str, before: str | None, name: str, paths: tuple[Path, Path]) -> str:
    """Return a word with the copy in place of the file if it names that, by the flag `name`."""
    path, copy = paths
    if not name.startswith("-"):
        return str(copy) if word == name else word
    flag, equals, value = word.partition("=")
    if equals and flag == name and Path(value) == path:
        return f"{name}={copy}"
    return str(copy) if before == name and Path(word) == path else word


def _file(word: str, arguments: Sequence[str]) -> Path:
    """Return the config file that the arguments name.

    Raises:
        UsageError: they name none.
    """
    name = given(word, arguments) if word.startswith("-") else word
    if name is None or (name == word and word not in arguments):
        raise UsageError(
            f"{word} is not among the script's arguments. Give it after the `--`, with the file."
        )
    if not Path(name).is_file():
        raise UsageError(f"there is no file {name}.")
    return Path(name)


def _changed(path: Path, key: str, value: Value) -> str:
    """Return the text of a file with another value for a key.

    Raises:
        UsageError: the file cannot be read, or has no such key.
    """
    content = _content(path)
    holder, last = _found(path, content, key)
    holder[last] = value
    if path.suffix == ".json":
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    text = StringIO()
    _round_trip().dump(content, text)
    return text.getvalue()


def _content(path: Path) -> Any:
    """Return what a file holds.

    Raises:
        UsageError: it cannot be read.
    """
    from ruamel.yaml.error import MarkedYAMLError

    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else _round_trip().load(text)
    except Exception as error:  # ruamel.yaml raises IndexError as well
        said = " ".join(str(error).split())
        if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark):
            said = f"{error.problem} in line {mark.line + 1}, column {mark.column + 1}"
        raise UsageError(f"{path} cannot be read as YAML or JSON: {said}.") from error


def _round_trip() -> Any:
    from ruamel.yaml import YAML

    way = YAML()
    way.preserve_quotes = True
    way.width = 1_000_000
    return way


def _found(path: Path, content: Any, key: str) -> tuple[Any, Any]:
    """Return the mapping or list that has a key of several parts, and its last part there.

    Raises:
        UsageError: nothing has it, or its value is a mapping or a list.
    """
    found = {name: (holder, part) for name, holder, part in _scalars(content)}
    if key not in found:
        raise UsageError(_no_such_key(path, key, list(found)))
    return found[key]


def _scalars(content: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each key of several parts that has a single value, its holder, and its last part.

    The target of an alias comes once, because an alias may contain itself.
    """
    waiting, seen = [("", content)], set[int]()
    for above, holder in waiting:  # which grows meanwhile
        if id(holder) in seen or not isinstance(holder, dict | list):
            continue
        seen.add(id(holder))
        for part in holder if isinstance(holder, dict) else range(len(holder)):
            if isinstance(holder[part], dict | list):
                waiting.append((f"{above}{part}.", holder[part]))
            else:
                yield f"{above}{part}", holder, part


def _no_such_key(path: Path, key: str, names: Sequence[str]) -> str:
    hint = did_you_mean(key, names)
    if not hint:  # the same name elsewhere
        last = key.rpartition(".")[2]
        same = [name for name in names if name.rpartition(".")[2] == last]
        hint = f" Did you mean {same[0]!r}?" if same else ""
    return f"{path} has no key {key} with a single value.{hint}"
