"""Digests of a script's arguments and of the files that they name.

Arguments may hold secrets, so studies and best.yaml have a digest in their place.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from autotune.calling.flag import Flag
from autotune.knobs.own import word_fault

_ENDINGS = frozenset({".yaml", ".yml", ".json", ".toml", ".py", ".cfg", ".ini"})
_MOST_BYTES = 4 << 20
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

    They show which argument differs, and are too few to give a value away. Positional arguments
    have the name "".
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
