"""Read small YAML files strictly, with the place of every key and value; write YAML.

Plain scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema):
`no`, `12:30` and `2024-01-01` are text, `1e-3` is a float, `010` is ten, `0x10` and `0o20` are
sixteen. The reader refuses numbers that are not finite, and features that a settings file does not
need: anchors, aliases, tags, merge keys, directives, keys that are not text and repeated keys.

The meaning of keys and values is checked elsewhere, with the positions that are given here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from autotune.values.errors import UsageError
from autotune.values.text import in_a_study

# A best.yaml has about 4 kB and 150 values.
MAX_BYTES = 64_000
MAX_VALUES = 2000
MAX_DEPTH = 20
_MAX_NUMBER_CHARACTERS = 400  # the largest float has 309 digits; Python reads at most 4300
_MAX_PROBLEMS_SHOWN = 50
_MAX_SHOWN_CHARACTERS = 60

Place = tuple[str | int, ...]
Spot = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Document:
    """Content of a file as plain data, with the position of each part."""

    name: str
    value: dict[str, Any]
    value_spots: Mapping[Place, Spot]
    key_spots: Mapping[Place, Spot]

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


def read(path: Path) -> Document:
    """Read the document in a file.

    Raises:
        UsageError: the file cannot be read or used; one line for each problem in it.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"{path}: cannot be read ({reason}). Name a readable file{in_a_study(path)}."
        ) from error
    _refuse_large(str(path), len(content))
    return parse(_decode(content, str(path)), str(path))


def parse(text: str, name: str) -> Document:
    """Parse the document in a text that messages call `name`.

    Raises:
        UsageError: the text cannot be used; one line for each problem in it.
    """
    _refuse_large(name, len(text))
    reader = _Reader(_loader(text.removeprefix("\ufeff"), name), name)
    value = reader.document()
    if not reader.problems and isinstance(value, dict):
        return Document(name, value, reader.value_spots, reader.key_spots)
    shown = reader.problems[:_MAX_PROBLEMS_SHOWN]
    if more := len(reader.problems) - len(shown):
        shown.append(f"{name}: {more} more problems. Correct those above first.")
    raise UsageError("\n".join(shown))


def dump(data: Mapping[str, Any]) -> str:
    """Return YAML text that `parse` and readers of YAML 1.1 read back as the same data.

    Raises:
        ValueError: a number is not finite, or the data contain themselves.
        TypeError: a value is none of text, number, bool, None, list and dict.
    """
    json.dumps(dict(data), allow_nan=False)  # only for its errors
    return yaml.dump(
        dict(data),
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        width=1_000_000,
    )


def _refuse_large(name: str, size: int) -> None:
    if size > MAX_BYTES:
        limit = f"{MAX_BYTES // 1000} kB"
        raise UsageError(f"{name}: larger than {limit}, the most that is read. Shorten the file.")


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        spot = _spot_after(content[: error.start].decode("utf-8"))
        what = f"byte 0x{content[error.start]:02x} is not UTF-8. Save the file as UTF-8 text."
        raise UsageError(f"{_position(name, spot)}: {what}") from error


def _loader(text: str, name: str) -> yaml.SafeLoader:
    try:
        return yaml.SafeLoader(text)
    except ReaderError as error:
        spot = _spot_after(text[: error.position])
        what = f"character U+{error.character:04X} is not allowed. Save the file as plain text."
        raise UsageError(f"{_position(name, spot)}: {what}") from error


def _position(name: str, spot: Spot) -> str:
    return f"{name}:{spot[0]}:{spot[1]}"


def _spot(mark: Any) -> Spot:
    return mark.line + 1, mark.column + 1


def _spot_after(text: str) -> Spot:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


class _TooMuchError(Exception):
    """Ends the reading of a file; the problem is already noted."""


class _Reader:
    """Turns the events of PyYAML's parser into plain data, and notes positions and problems."""

    def __init__(self, loader: yaml.SafeLoader, name: str) -> None:
        self.loader = loader
        self.name = name
        self.value_spots: dict[Place, Spot] = {}
        self.key_spots: dict[Place, Spot] = {}
        self.problems: list[str] = []

    def document(self) -> object:
        """Return the data of the only document, which is meaningless if there are problems."""
        try:
            return self._only_document()
        except yaml.MarkedYAMLError as error:
            self._note_syntax(error)
        except (ValueError, OverflowError):  # from chr() and int() in PyYAML's scanner
            what = "not valid YAML: the number of a character or version is too large. Correct it."
            self._note(self.loader.get_mark(), what)
        except _TooMuchError:
            pass
        return None

    def _only_document(self) -> object:
        self._next()
        start = self._next()
        if isinstance(start, yaml.DocumentStartEvent) and (start.version or start.tags):
            self._note(start.start_mark, "a % directive. Remove it.")
        event = self._next() if isinstance(start, yaml.DocumentStartEvent) else start
        value = self._node(event, ())
        if not isinstance(event, yaml.MappingStartEvent):
            found = "empty" if value is None else _shown(value)
            what = f"the top level is {found}. Write a mapping, 'key: value'."
            self._note(event.start_mark, what)
        self._next()
        end = self._next()
        if isinstance(end, yaml.DocumentStartEvent):
            self._note(end.start_mark, "a second document. Keep one document in a file.")
        return value

    def _next(self) -> Any:
        return self.loader.get_event()  # type: ignore[no-untyped-call]

    def _node(self, event: Any, place: Place) -> object:
        if len(self.value_spots) >= MAX_VALUES:
            self._note(event.start_mark, f"more than {MAX_VALUES} values. Shorten the file.")
            raise _TooMuchError
        self.value_spots[place] = _spot(event.start_mark)
        return self._content(event, place)

    def _content(self, event: Any, place: Place) -> object:
        match event:
            case yaml.AliasEvent():
                alias = f"*{event.anchor:.60}"
                self._note(event.start_mark, f"alias '{alias}'. Write the value out instead.")
                return alias
            case yaml.ScalarEvent():
                self._note_labels(event)
                return self._scalar(event)
            case yaml.SequenceStartEvent():
                self._open(event, place)
                return self._sequence(place)
            case yaml.MappingStartEvent():
                self._open(event, place)
                return self._mapping(place)
        return None  # the end of an empty file

    def _open(self, event: Any, place: Place) -> None:
        self._note_labels(event)
        if len(place) >= MAX_DEPTH:
            self._note(event.start_mark, f"nested deeper than {MAX_DEPTH} levels. Flatten it.")
            raise _TooMuchError

    def _sequence(self, place: Place) -> list[object]:
        items: list[object] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._node(event, (*place, len(items))))
        return items

    def _mapping(self, place: Place) -> dict[str, object]:
        entries: dict[str, object] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, place)
            if key in entries:
                line = self.key_spots[(*place, key)][0]
                what = f"duplicate key {_shown(key)} (first on line {line}). Keep only one."
                self._note(event.start_mark, what)
            else:
                self.key_spots[(*place, key)] = _spot(event.start_mark)
            entries[key] = self._node(self._next(), (*place, key))
        return entries

    def _key(self, event: Any, place: Place) -> str:
        key = self._content(event, (*place, "?"))
        if not isinstance(key, str):
            what = f"key {_shown(key)} is not text. Write a name, or put it in quotes."
            self._note(event.start_mark, what)
        elif key == "<<" and event.implicit[0]:
            self._note(event.start_mark, "merge key '<<'. Write the merged entries out instead.")
        return str(key)

    def _scalar(self, event: yaml.ScalarEvent) -> object:
        if not event.implicit[0]:  # quoted, or a block of text
            return event.value
        try:
            return _plain_value(event.value)
        except ValueError:
            what = f"number {_shown(event.value)} is not finite or too long. Write another."
            self._note(event.start_mark, what)
            return event.value

    def _note_labels(self, event: Any) -> None:
        if event.anchor is not None:
            self._note(event.start_mark, f"anchor '&{event.anchor:.60}'. Remove it.")
        if event.tag is not None:
            self._note(event.start_mark, f"tag {_shown(event.tag)}. Remove it.")

    def _note_syntax(self, error: yaml.MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        what = f"not valid YAML: {error.problem}"
        if "'\\t' that cannot start" in what:
            what = "a tab where only spaces are allowed. Replace it with spaces."
        elif error.context_mark is not None:
            line = error.context_mark.line + 1
            what += f" ({error.context} that begins on line {line}). Correct the text there."
        else:
            what += ". Correct the text there, or put it in quotes."
        self._note(mark, what)

    def _note(self, mark: Any, what: str) -> None:
        self.problems.append(f"{_position(self.name, _spot(mark))}: {what}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}..."


def _finite(text: str) -> float:
    """Return the number in a text.

    Raises:
        ValueError: the text is `.inf` or `.nan`, or its number overflows to infinity.
    """
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


def _plain_value(text: str) -> object:
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
