"""Tell from its source whether a file may set environment variables."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_READS = ("get", "copy", "items", "keys", "values")


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
