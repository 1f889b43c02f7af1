"""Import the installed packages that a workload imports, found in its source without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

from autotune.scripting.surroundings.environment import tree_sets_environment
from autotune.scripting.surroundings.trackers import TRACKERS

_OURS = __name__.partition(".")[0]


@cache
def preload(model_path: Path, seen: tuple[str, ...] = ()) -> None:
    """Import what the file imports from installed packages; errors are left to the trial.

    Modules beside the file are the user's code, which runs in trials only. Experiment trackers are
    left out, because some read their switches when they are imported. Nothing is imported if the
    file may set environment variables first.

    Args:
        model_path: the file.
        seen: modules of installed packages that a run of the file has imported from other places.
    """
    with suppress(OSError, SyntaxError, ValueError):
        tree = ast.parse(model_path.read_bytes())
        if tree_sets_environment(tree):
            return
        for name, attributes in _imports(tree):
            _import(name, attributes, model_path)
        for name in seen:
            _import(name, [], model_path)


def _import(name: str, attributes: list[str], model_path: Path) -> None:
    top = name.partition(".")[0]
    if top not in TRACKERS and not _is_beside(top, model_path):
        # A module may raise anything when it is imported, SystemExit included.
        with suppress(BaseException):
            __import__(name, fromlist=attributes)


def shadowed(model_path: Path) -> list[str]:
    """Return the modules beside the workload that it could not import, or not run, itself.

    Their name is taken by another one, or a package that looks for it has found and run the file.
    """
    own = {entry.stem for entry in model_path.parent.iterdir()} - {model_path.stem, _OURS}
    return sorted(n for n in own if getattr(sys.modules.get(n), "__file__", None))


def _imports(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules that the file imports when it is loaded, with the names taken from each."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If(test) if _is_never_true(test):
                pending += node.orelse
            case ast.Import(names):
                yield from ((alias.name, []) for alias in names)
            case ast.ImportFrom(str(name), names, 0):
                yield name, [alias.name for alias in names if alias.name != "*"]
            case _:
                pending += ast.iter_child_nodes(node)


def _is_never_true(test: ast.expr) -> bool:
    """Return True for `__name__ == "__main__"` and `TYPE_CHECKING`: a trial skips such blocks."""
    names = {part.id for part in ast.walk(test) if isinstance(part, ast.Name)}
    attributes = {part.attr for part in ast.walk(test) if isinstance(part, ast.Attribute)}
    return bool({"__name__", "TYPE_CHECKING"} & (names | attributes))


def _is_beside(name: str, model_path: Path) -> bool:
    """Return True if the module lies in the file's folder or in the working directory."""
    folders = [str(model_path.parent), str(Path.cwd())]
    return name not in sys.modules and PathFinder.find_spec(name, folders) is not None
