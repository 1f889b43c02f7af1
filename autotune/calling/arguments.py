"""A script's arguments and the config files that they name: digests, and changed copies of files.

Arguments may hold secrets, so studies and best.yaml hold a digest of them. A key of a config file
is changed in a copy, which keeps YAML's comments, tags, anchors and spellings.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from autotune.calling.flag import Flag, given
from autotune.knobs.base import Value, spelled
from autotune.knobs.own import word_fault
from autotune.values.errors import UsageError
from autotune.values.text import did_you_mean

_ENDINGS = frozenset({".yaml", ".yml", ".json", ".toml", ".py", ".cfg", ".ini"})
_MOST_BYTES = 4 << 20
_SUFFIXES = (".yaml", ".yml", ".json")
# Size from which a file counts as data; config files whose keys a map may name are smaller.
_MOST_CONFIG_BYTES = 100_000
# Arguments for the length of a training, the point from which it resumes, its seed, the place of
# its results, and how often something is saved, printed or evaluated.
_LENGTH = (
    r"(.*\.)?(((num|max|n|total|train|start)[-_]?)*(epochs?|steps|iters?|iterations)|"
    r"total[-_]?timesteps)"
)
_RESUME = r"(.*[-_.])?resume([-_](from|path|checkpoint|ckpt|epoch|step|id|dir|training)([-_].*)?)?"
_OFTEN = (
    r"(.*\.)?(save|log|logging|print|eval|report|checkpointing)[-_]"
    r"(every|freq|frequency|interval|steps|strategy|period)"
)
_PLACES = "out|output|save|log|logs|logging|checkpoints?|ckpt|results?|metrics|report|run"
_PLACE = (
    rf"({_PLACES})|(.*[-_.])?({_PLACES})[-_.]?(dir|directory|path|folder|file|root|name|to)|"
    r"(.*[-_.])?(exp|experiment|project|work)[-_.]?(dir|directory|folder|root|name)"
)
_WRITTEN = re.compile(rf"[-+]*({_PLACE})", re.IGNORECASE)
_OF_A_RUN = re.compile(
    rf"[-+]*({_LENGTH}|{_RESUME}|(.*[-_.])?seed|{_OFTEN}|{_PLACE})", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Return True if an argument of this name looks like a secret, such as --api-token."""
    fault = word_fault("flags", name.replace("-", "_").lstrip("_") or "x")
    return fault is not None and "secret" in fault


def arguments_digest(arguments: Sequence[str], mapped: Sequence[Flag]) -> str:
    """Return a digest of the arguments that affect a training, whatever their order.

    Left out are flags that carry settings, secrets, the length of a training, the point from which
    it resumes, its seed, the places and names of results, and how often something is saved, printed
    or evaluated. A file counts by its contents.
    """
    values = _by_name(arguments, mapped)
    unnamed = values.pop("", [])
    named = [(name, value) for name, each in values.items() for value in each]
    return _digest([sorted(named, key=repr), unnamed])


def digest_of_each(arguments: Sequence[str], mapped: Sequence[Flag]) -> dict[str, str]:
    """Return four hex digits of the values of each argument that `arguments_digest` counts.

    They show which argument differs without giving its value away. "" is for positional ones.
    """
    return {name: _digest(values)[:4] for name, values in _by_name(arguments, mapped).items()}


def _by_name(arguments: Sequence[str], mapped: Sequence[Flag]) -> dict[str, list[str | None]]:
    """Return the values of each argument that affects a training; "" names words."""
    found: dict[str, list[str | None]] = {}
    carried = {word.partition("=")[0] for flag in mapped for word in flag.words}
    for name, value in _pairs(arguments):
        if name not in carried and not _OF_A_RUN.fullmatch(name) and not is_secret(name):
            known = None if value is None else _contents(value) or value
            found.setdefault(name, []).append(known)
    return found


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()


def files_digest(arguments: Sequence[str]) -> str | None:
    """Return a digest of the config files among the arguments; None if there are none.

    These are YAML, JSON, TOML, INI and Python files of at most 4 MiB. Those that an argument names
    as a place of results do not count.
    """
    found = [contents for path in config_files(arguments) if (contents := _contents(str(path)))]
    return _digest(found) if found else None


def config_files(arguments: Sequence[str]) -> list[Path]:
    """Return the config files that the arguments name, except places of results."""
    values = (value for name, value in _pairs(arguments) if not _WRITTEN.fullmatch(name))
    return [Path(value) for value in values if value and _is_config(Path(value))]


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each argument's name and value, None without one; "" names a word by itself."""
    name = ""
    for word in arguments:
        key, equals, value = word.partition("=")
        if not equals and not re.match(r"-+[A-Za-z]", word):  # a negative number is a value
            yield name, word
            name = ""
            continue
        if name:
            yield name, None
        name = "" if equals else word
        if equals:
            yield key, value
    if name:
        yield name, None


def _contents(word: str) -> str | None:
    """Return a digest of the config file that a word names; None if it names none."""
    with suppress(OSError, ValueError):  # ValueError: a NUL in the word
        if _is_config(path := Path(word)):
            return hashlib.sha256(path.read_bytes()).hexdigest()
    return None


def _is_config(path: Path) -> bool:
    with suppress(OSError, ValueError):  # ValueError: a NUL in the word
        is_config = path.suffix.lower() in _ENDINGS and path.is_file()
        return is_config and path.stat().st_size <= _MOST_BYTES
    return False


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
                path = _file(word, arguments)
                _found(path, _content(path), key)
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
    words, of_files = list(arguments), defaultdict[Path, list[Edit]](list)
    for edit in edits:
        of_files[_file(edit.word, arguments)].append(edit)
    for path, own in of_files.items():
        content = _content(path)
        places = [(*_found(path, content, edit.key), edit.value) for edit in own]
        if all(spelled(holder[part]) == spelled(value) for holder, part, value in places):
            continue
        for holder, part, value in places:
            holder[part] = value
        copy = Path(mkdtemp(prefix="config-", dir=folder)) / path.name
        copy.write_text(_text(path, content), encoding="utf-8")
        for name in dict.fromkeys(edit.word for edit in own):
            pairs = pairwise(("", *words))
            words = [_renamed(word, before, name, (path, copy)) for before, word in pairs]
    return tuple(words)


def whole_numbers(arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each key with a whole number in the config files among arguments, as a map spells it.

    Places of results are left out, and files and keys that no map can name, such as the first of
    two files that the same flag takes.
    """
    read = {path for path in config_files(arguments) if path.suffix in _SUFFIXES}
    for before, word in pairwise(("", *arguments)):
        name, equals, value = word.partition("=")
        way = name if equals else before if before.startswith("-") else word
        path = Path(value if equals else word)
        with suppress(OSError, UsageError):
            is_small = path in read and path.stat().st_size < _MOST_CONFIG_BYTES
            is_read = is_small and _file(way, arguments) == path
            for key, holder, part in _scalars(_content(path) if is_read else None):
                is_whole = isinstance(holder[part], int) and not isinstance(holder[part], bool)
                if is_whole and Flag("batch_size", f"{way}:{key}").file_key == (way, key):
                    yield f"{way}:{key}", int(holder[part])


def _renamed(word: str, before: str, name: str, paths: tuple[Path, Path]) -> str:
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


def _text(path: Path, content: Any) -> str:
    """Return a file's content as its text, in the form that its name says."""
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
    if key in found:
        return found[key]
    hint = did_you_mean(key, found)
    if not hint:  # the same name elsewhere
        last = key.rpartition(".")[2]
        same = next((name for name in found if name.rpartition(".")[2] == last), None)
        hint = f" Did you mean {same!r}?" if same else ""
    raise UsageError(f"{path} has no key {key} with a single value.{hint}")


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
