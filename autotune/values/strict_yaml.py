"""Read small YAML files strictly, with the place of every key and value; write YAML.

Plain scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema):
`no`, `12:30` and `2024-01-01` are text, `1e-3` is a float, `010` is ten, `0x10` and `0o20` are
sixteen. Keys are text, however they are written. The reader refuses numbers that are not finite,
and what a settings file does not need: anchors, aliases, tags and repeated keys.

The meaning of keys and values is checked elsewhere, with the positions that are given here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml
from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from autotune.values.errors import UsageError
from autotune.values.text import in_a_study

# A best.yaml has about 4 kB.
MAX_BYTES = 64_000
MAX_DEPTH = 20
_MAX_NUMBER_CHARACTERS = 400  # the largest float has 309 digits; Python reads at most 4300
_MAX_SHOWN = 60

KeyPath = tuple[str | int, ...]
Spot = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Document:
    """Content of a file as plain data, with the position of each part."""

    name: str
    value: dict[str, Any]
    value_spots: Mapping[KeyPath, Spot]
    key_spots: Mapping[KeyPath, Spot]

    def position(self, *place: str | int) -> str:
        """Return `name:line:column` of the value at a place, or of its nearest existing parent."""
        while place not in self.value_spots:
            place = place[:-1]
        return _position(self.name, self.value_spots[place])

    def key_position(self, *place: str | int) -> str:
        """Return `name:line:column` of the key of a mapping entry, else of the value."""
        if place in self.key_spots:
            return _position(self.name, self.key_spots[place])
        return self.position(*place)


def shipped(folder: str) -> dict[str, Path]:
    """Return name to file of the YAML files that come with autotune in a folder."""
    package = Path(__file__).parents[1]
    # A wheel has them in the package, a checkout beside it.
    place = next(f for f in (package / folder, package.parent / folder) if f.is_dir())
    return {path.stem: path for path in sorted(place.glob("*.yaml"))}


def read(path: Path) -> Document:
    """Read the document in a file.

    Raises:
        UsageError: the file cannot be read or used; the first problem, with its position.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"{path}: cannot be read ({reason}). Name a readable file{in_a_study(path)}."
        ) from error
    if len(content) > MAX_BYTES:
        limit = f"{MAX_BYTES // 1000} kB"
        raise UsageError(f"{path}: larger than {limit}, the most that is read. Shorten the file.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        spot = _spot_after(content[: error.start].decode("utf-8"))
        what = f"byte 0x{content[error.start]:02x} is not UTF-8. Save the file as UTF-8 text."
        raise UsageError(f"{_position(str(path), spot)}: {what}") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> Document:
    """Parse the document in a text that messages call `name`.

    Raises:
        UsageError: the text cannot be used; the first problem, with its position.
    """
    text = text.removeprefix("\ufeff")
    try:
        return _Reader(name, YAML(typ="safe", pure=True).parse(text)).document()
    except ReaderError as error:
        spot, what = _spot_after(text[: error.position]), f"character U+{error.character:04X}"
    except MarkedYAMLError as error:
        spot, what = _spot(error.problem_mark or error.context_mark), error.problem
        if error.context_mark is not None:
            what += f" ({error.context} that begins on line {error.context_mark.line + 1})"
    except (ValueError, OverflowError) as error:  # from chr() and int() in the scanner
        spot, what = (1, 1), f"the number of a character or version in it: {error}"
    raise UsageError(f"{_position(name, spot)}: not valid YAML: {what}. Correct the text there.")


def dump(data: Mapping[str, Any]) -> str:
    """Return YAML text that `parse` and readers of YAML 1.1 read back as the same data."""
    return yaml.dump(
        dict(data),
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        width=1_000_000,
    )


def _position(name: str, spot: Spot) -> str:
    return f"{name}:{spot[0]}:{spot[1]}"


def _spot(mark: Any) -> Spot:
    return mark.line + 1, mark.column + 1


def _spot_after(text: str) -> Spot:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


class _Reader:
    """Turns the events of one document into plain data; notes positions."""

    def __init__(self, name: str, events: Iterator[Any]) -> None:
        self._name = name
        self._events = events
        self._values: dict[KeyPath, Spot] = {}
        self._keys: dict[KeyPath, Spot] = {}

    def document(self) -> Document:
        """Return the document; refuse anything but one mapping of plain data."""
        next(self._events)  # the stream's start
        start = next(self._events)
        is_empty = isinstance(start, events.StreamEndEvent)
        value = None if is_empty else self._value(next(self._events), ())
        if not isinstance(value, dict):
            found = "empty" if value is None else _shown(value)
            self._refuse(start, f"the top level is {found}. Write a mapping, 'key: value'.")
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, events.StreamEndEvent):
            self._refuse(after, "a second document. Keep one document in a file.")
        return Document(self._name, value, self._values, self._keys)

    def _refuse(self, event: Any, what: str) -> NoReturn:
        raise UsageError(f"{_position(self._name, _spot(event.start_mark))}: {what}")

    def _value(self, event: Any, place: KeyPath) -> object:
        self._check(event)
        self._values[place] = _spot(event.start_mark)
        if isinstance(event, events.CollectionStartEvent) and len(place) >= MAX_DEPTH:
            self._refuse(event, f"nested deeper than {MAX_DEPTH} levels. Flatten it.")
        if isinstance(event, events.MappingStartEvent):
            return self._mapping(place)
        if isinstance(event, events.SequenceStartEvent):
            items: list[object] = []
            while not isinstance(item := next(self._events), events.SequenceEndEvent):
                items.append(self._value(item, (*place, len(items))))
            return items
        if event.style:  # quoted, or a block of text
            return event.value
        try:
            return plain_value(event.value)
        except ValueError:
            number = _shown(event.value)
            self._refuse(event, f"number {number} is not finite or too long. Write another.")

    def _mapping(self, place: KeyPath) -> dict[str, object]:
        entries: dict[str, object] = {}
        while not isinstance(key := next(self._events), events.MappingEndEvent):
            self._check(key)
            if not isinstance(key, events.ScalarEvent):
                self._refuse(key, "a key that is not text. Write a name.")
            where = (*place, key.value)
            if key.value in entries:
                first = f"(first on line {self._keys[where][0]})"
                self._refuse(key, f"duplicate key {_shown(key.value)} {first}. Keep only one.")
            self._keys[where] = _spot(key.start_mark)
            entries[key.value] = self._value(next(self._events), where)
        return entries

    def _check(self, event: Any) -> None:
        """Refuse the start of a value with a label."""
        if isinstance(event, events.AliasEvent) or event.anchor or event.tag:
            self._refuse(event, "an anchor, an alias or a tag. Write the plain value instead.")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


# The first match wins; text matches none.
_CORE_SCHEMA: tuple[tuple[str, Callable[[str], object]], ...] = (
    (r"|~|null|Null|NULL", lambda _: None),
    (r"true|True|TRUE", lambda _: True),
    (r"false|False|FALSE", lambda _: False),
    (r"[-+]?[0-9]+", int),
    (r"0o[0-7]+", lambda text: int(text, 8)),
    (r"0x[0-9a-fA-F]+", lambda text: int(text, 16)),
    (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", _finite),
    (r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", _finite),
)


def plain_value(text: str) -> object:
    """Return what a plain scalar stands for.

    Raises:
        ValueError: a number that is not finite, or too long.
    """
    for pattern, convert in _CORE_SCHEMA:
        if re.fullmatch(pattern, text):
            if len(text) > _MAX_NUMBER_CHARACTERS:
                raise ValueError(text)
            return convert(text)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes repeated objects in full, and quotes strings that would be read as another type."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if text.isprintable() else '"'  # the other styles turn U+0085 into a space
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


def _represent_list(dumper: yaml.SafeDumper, items: list[object]) -> yaml.SequenceNode:
    """Write a list of scalars on one line."""
    short = not any(isinstance(item, dict | list) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)
_Dumper.add_implicit_resolver(
    "!not-text", re.compile("|".join(rf"(?:{pattern})\Z" for pattern, _ in _CORE_SCHEMA)), None
)
