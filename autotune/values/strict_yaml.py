"""Read small YAML files strictly, with the place of every key and value; write YAML.

Plain scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema):
`no`, `12:30` and `2024-01-01` are text, `1e-3` is a float, `010` is ten, `0x10` and `0o20` are
sixteen. Keys are text, however they are written. The reader refuses numbers that are not finite,
and what a settings file does not need: anchors, aliases, tags, directives and repeated keys.

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
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode
from ruamel.yaml.reader import ReaderError

from autotune.values.errors import UsageError
from autotune.values.text import in_a_study

# A best.yaml has about 4 kB, and 300 keys and values.
MAX_BYTES = 64_000
MAX_NODES = 4000
MAX_DEPTH = 20
_MAX_NUMBER_CHARACTERS = 400  # the largest float has 309 digits; Python reads at most 4300
_MAX_PROBLEMS_SHOWN = 50
_MAX_SHOWN = 60
_DIRECTIVE = re.compile(r"(?:(?<=[\n\r\x85\u2028\u2029])|\A)%")

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
        UsageError: the text cannot be used; one line for each problem in it.
    """
    _refuse_large(name, len(text))
    loader = YAML(typ="safe", pure=True)
    loader.Composer = _Composer
    composer: _Composer = loader.composer
    value = _value(loader, text.removeprefix("\ufeff"))
    if not composer.problems and isinstance(value, dict):
        return Document(name, value, composer.value_spots, composer.key_spots)
    lines = [f"{_position(name, spot)}: {what}" for spot, what in sorted(composer.problems)]
    if more := len(lines[_MAX_PROBLEMS_SHOWN:]):
        lines[_MAX_PROBLEMS_SHOWN:] = [f"{name}: {more} more problems. Correct those above first."]
    raise UsageError("\n".join(lines))


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


def _position(name: str, spot: Spot) -> str:
    return f"{name}:{spot[0]}:{spot[1]}"


def _spot(mark: Any) -> Spot:
    return mark.line + 1, mark.column + 1


def _spot_after(text: str) -> Spot:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def _value(loader: YAML, text: str) -> object:
    """Return the data in a text; what is wrong is noted in the loader's composer."""
    composer: _Composer = loader.composer
    if found := _DIRECTIVE.search(text):
        composer.problems.append((_spot_after(text[: found.start()]), "a % directive. Remove it."))
        return None
    try:
        loader.get_constructor_parser(text)  # as `compose` does, which forgets where it failed
        return composer.top(composer.get_single_node())
    except ReaderError as error:
        what = f"character U+{error.character:04X} is not allowed. Save the file as plain text."
        composer.problems.append((_spot_after(text[: error.position]), what))
    except MarkedYAMLError as error:
        composer.note(error.problem_mark or error.context_mark, _syntax(error))
    except (ValueError, OverflowError):  # from chr() and int() in the scanner
        what = "not valid YAML: the number of a character or version is too large. Correct it."
        composer.note(loader.reader.get_mark(), what)
    except _TooMuchError:
        pass
    return None


def _syntax(error: MarkedYAMLError) -> str:
    if error.problem == "but found another document":
        return "a second document. Keep one document in a file."
    if "'\\t' that cannot start" in str(error.problem):
        return "a tab where only spaces are allowed. Replace it with spaces."
    if error.context_mark is None:
        return f"not valid YAML: {error.problem}. Correct the text there, or put it in quotes."
    where = f"{error.context} that begins on line {error.context_mark.line + 1}"
    return f"not valid YAML: {error.problem} ({where}). Correct the text there."


class _TooMuchError(Exception):
    """Ends the reading of a file; the problem is already noted."""


class _Composer(Composer):
    """Composes nodes and turns them into plain data; notes positions and problems."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self.warn_double_anchors = False
        self.value_spots: dict[Place, Spot] = {}
        self.key_spots: dict[Place, Spot] = {}
        self.problems: list[tuple[Spot, str]] = []
        self._nodes = self._open = 0

    def note(self, mark: Any, what: str) -> None:
        """Note a problem."""
        self.problems.append((_spot(mark), what))

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node; note its labels.

        Raises:
            _TooMuchError: it is one too many, or too deep.
        """
        event = self.parser.peek_event()
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self.note(event.start_mark, f"more than {MAX_NODES} keys and values. Shorten the file.")
            raise _TooMuchError
        if isinstance(event, AliasEvent):
            alias = f"*{event.anchor:.60}"
            self.note(event.start_mark, f"alias '{alias}'. Write the value out instead.")
            self.parser.get_event()
            return ScalarNode("", alias, event.start_mark, event.end_mark, style="'")
        if event.anchor is not None:
            self.note(event.start_mark, f"anchor '&{event.anchor:.60}'. Remove it.")
        if event.tag is not None:
            self.note(event.start_mark, f"tag {_shown(event.tag)}. Remove it.")
        if self._open >= MAX_DEPTH and isinstance(event, CollectionStartEvent):
            self.note(event.start_mark, f"nested deeper than {MAX_DEPTH} levels. Flatten it.")
            raise _TooMuchError
        self._open += 1
        node = super().compose_node(parent, index)
        self._open -= 1
        return node

    def top(self, node: Any) -> object:
        """Return the data of a document, None if it is empty."""
        value = None if node is None else self._data(node, ())
        if not isinstance(value, dict):
            found = "empty" if value is None else _shown(value)
            what = f"the top level is {found}. Write a mapping, 'key: value'."
            self.problems.append((self.value_spots.get((), (1, 1)), what))
        return value

    def _data(self, node: Any, place: Place) -> object:
        self.value_spots[place] = _spot(node.start_mark)
        if isinstance(node, MappingNode):
            return self._mapping(node, place)
        if not isinstance(node, ScalarNode):
            return [self._data(item, (*place, index)) for index, item in enumerate(node.value)]
        if node.style:  # quoted, or a block of text
            return node.value
        try:
            return _plain_value(node.value)
        except ValueError:
            what = f"number {_shown(node.value)} is not finite or too long. Write another."
            self.note(node.start_mark, what)
            return None

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, object]:
        entries: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            where = (*place, key)
            if not isinstance(key_node, ScalarNode):
                self.note(key_node.start_mark, "a key that is not text. Write a name.")
            elif key in entries:
                line = self.key_spots[where][0]
                what = f"duplicate key {_shown(key)} (first on line {line}). Keep only one."
                self.note(key_node.start_mark, what)
            self.key_spots.setdefault(where, _spot(key_node.start_mark))
            entries[key] = self._data(value_node, where)
        return entries


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


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
