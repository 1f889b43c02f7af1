"""Change one key in a copy of a YAML or JSON file that a script is given.

In YAML only the text of the value is replaced, so that comments, tags and anchors stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import yaml

from autotune.calling.arguments import config_files
from autotune.calling.flag import Flag, given
from autotune.knobs.base import Value, spelled
from autotune.values.errors import UsageError
from autotune.values.text import did_you_mean

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_BYTES = 100_000
"""Size from which on a file holds data; a config file is smaller."""


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

    A file that has all the values already stays: what lies beside it is found from it alone.

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
            with suppress(OSError, ValueError, RecursionError, UsageError, yaml.YAMLError):
                yield from _ways(way, path, arguments)


def _ways(way: str, path: Path, arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    if path.stat().st_size >= _MOST_BYTES or _file(way, arguments) != path:
        return
    for key, number in _numbers(path, path.read_text(encoding="utf-8")):
        if Flag("batch_size", f"{way}:{key}").file_key == (way, key):
            yield f"{way}:{key}", number


def _is_there(edit: Edit, arguments: Sequence[str]) -> bool:
    """Return whether the file has the value already.

    Raises:
        UsageError: it cannot be read, or has no such key.
    """
    path = _file(edit.word, arguments)
    changed = _changed(path, edit.key, edit.value)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return spelled(_at(json.loads(text), edit.key)) == spelled(edit.value)
    return text == changed


def _numbers(path: Path, text: str) -> Iterator[tuple[str, int]]:
    if path.suffix == ".json":
        content = json.loads(text)
        for key in _keys(content):
            if type(value := _at(content, key)) is int:
                yield key, value
        return
    for key, (start, end) in _scalars(yaml.compose(text, yaml.SafeLoader)):
        if text[start:end].isdecimal():
            yield key, int(text[start:end])


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
            f"the script's arguments do not have {word}. Give it after the `--`, with the file."
        )
    if not Path(name).is_file():
        raise UsageError(f"there is no file {name}.")
    return Path(name)


def _changed(path: Path, key: str, value: Value) -> str:
    """Return the text of a file with another value for a key.

    Raises:
        UsageError: the file cannot be read, or has no such key.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return _changed_json(path, text, key, value)
        return _changed_yaml(path, text, key, value)
    except (OSError, ValueError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"{path} cannot be read as YAML or JSON: {said}.") from error


def _changed_json(path: Path, text: str, key: str, value: Value) -> str:
    content = json.loads(text)
    *parents, last = key.split(".")
    holder = content
    for part in parents:
        holder = _entry(holder, part)
    if _entry(holder, last) is _MISSING or isinstance(_entry(holder, last), dict | list):
        raise UsageError(_no_such_key(path, key, _keys(content)))
    holder[int(last) if isinstance(holder, list) else last] = value
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


_MISSING = object()


def _at(content: Any, key: str) -> Any:
    """Return what a key of several parts holds."""
    return reduce(_entry, key.split("."), content)


def _entry(holder: Any, part: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(part, _MISSING)
    if isinstance(holder, list) and part.isdigit() and int(part) < len(holder):
        return holder[int(part)]
    return _MISSING


def _keys(content: Any, above: str = "") -> Iterator[str]:
    entries: Any = content.items() if isinstance(content, dict) else ()
    if isinstance(content, list):
        entries = enumerate(content)
    for part, entry in entries:
        if isinstance(entry, dict | list):
            yield from _keys(entry, f"{above}{part}.")
        else:
            yield f"{above}{part}"


def _changed_yaml(path: Path, text: str, key: str, value: Value) -> str:
    scalars = dict(_scalars(yaml.compose(text, yaml.SafeLoader)))
    if key not in scalars:
        raise UsageError(_no_such_key(path, key, scalars))
    start, end = scalars[key]
    if end < start:
        raise UsageError(f"{key} in {path} is an alias (*name). Map the key with the anchor.")
    old = text[start:end]
    kept = "".join(f"{word} " for word in old.split(" ") if word[:1] in ("&", "!"))
    return f"{text[:start]}{kept}{spelled(value)}{text[end:]}"


def _scalars(node: yaml.Node | None, above: str = "") -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each key with the place of its value in the text; an alias ends before it starts."""
    children: list[tuple[str, int, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(str(k.value), k.end_mark.index, v) for k, v in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(str(n), node.start_mark.index, v) for n, v in enumerate(node.value)]
    for name, begin, child in children:
        if isinstance(child, yaml.ScalarNode):
            place = (child.start_mark.index, child.end_mark.index)
            yield f"{above}{name}", place if place[0] >= begin else (0, -1)
        elif child.start_mark.index >= begin:
            yield from _scalars(child, f"{above}{name}.")


def _no_such_key(path: Path, key: str, known: Any) -> str:
    names = list(known)
    hint = did_you_mean(key, names)
    if not hint:  # the same name elsewhere
        last = key.rpartition(".")[2]
        same = [name for name in names if name.rpartition(".")[2] == last]
        hint = f" Did you mean {same[0]!r}?" if same else ""
    return f"{path} has no key {key} with a single value.{hint}"
