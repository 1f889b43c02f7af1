"""Tell which installed packages a script has imported, which a warm host may do before it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from autotune.process.common.imports import imported_files, is_installed

# Names that a request to a host has room for, and how deep they lie: `torchvision.transforms.v2`.
_MOST, _DEEPEST = 2000, 3
_READS = ("get", "copy", "items", "keys", "values")


class Imports:
    """The imports of this process from now on."""

    def __init__(self) -> None:
        """Note what is imported already, and where a host would find packages."""
        self._before = frozenset(sys.modules)
        self._places = tuple(f"{place}/" for place in sys.path if place)

    def packages(self) -> tuple[str, ...]:
        """Return the public modules of installed packages, in the order of their import.

        Nothing is returned if a file of the user's own may have set environment variables, which
        packages read when they are imported.
        """
        new = [(name, place) for name, place in imported_files() if name not in self._before]
        if any(sets_environment(place) for _, place in new if not is_installed(place)):
            return ()
        return tuple(name for name, place in new if self._is_shared(name, place))[:_MOST]

    def _is_shared(self, name: str, place: Path) -> bool:
        return is_installed(place) and str(place).startswith(self._places) and _is_public(name)


def _is_public(name: str) -> bool:
    parts = name.split(".")
    return len(parts) <= _DEEPEST and not any(part.startswith("_") for part in parts)


def sets_environment(path: Path) -> bool:
    """Return True if a file may set environment variables for the modules that it imports next."""
    with suppress(OSError, SyntaxError, ValueError):
        return tree_sets_environment(ast.parse(path.read_bytes()))
    return False


def tree_sets_environment(tree: ast.Module) -> bool:
    """Return True if a parsed file mentions the environment other than to read it."""
    reads = set(_reads_of_environment(tree))
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name))
    return any(
        (node.attr if isinstance(node, ast.Attribute) else node.id)
        in ("environ", "putenv", "unsetenv", "load_dotenv")
        and node not in reads
        for node in nodes
    )


def _reads_of_environment(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of `environ` in `environ.get(...)`, `environ[...]` and `in environ`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value, name) if name in _READS:
                yield value
            case ast.Subscript(value, ctx=ast.Load()):
                yield value
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[value]):
                yield value
