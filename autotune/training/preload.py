"""Which modules of others a workload imports, read off its source without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path


@cache
def preload(model_path: Path) -> None:
    """Import what the file imports from installed packages; what fails will fail in the trial too.

    Modules beside the file are the user's own code, which no process but a trial runs.
    """
    with suppress(OSError, SyntaxError, ValueError):
        tree = ast.parse(model_path.read_bytes())
        if _sets_environment(tree):
            return  # perhaps for the modules that it imports next
        for name, attributes in _imports(tree):
            if not _is_beside(name.partition(".")[0], model_path):
                # A module may raise anything when it is imported, SystemExit included.
                with suppress(BaseException):
                    __import__(name, fromlist=attributes)


def sets_environment(path: Path) -> bool:
    """Whether a file may set environment variables, for the modules that it imports next."""
    with suppress(OSError, SyntaxError, ValueError):
        return _sets_environment(ast.parse(path.read_bytes()))
    return False


def shadowed(model_path: Path) -> list[str]:
    """Files beside the workload that it could not import, because their names are taken."""
    own = {entry.stem for entry in model_path.parent.iterdir()} - {model_path.stem}
    places = {name: getattr(sys.modules.get(name), "__file__", None) for name in own}
    folder = model_path.parent
    return sorted(n for n, place in places.items() if place and folder not in Path(place).parents)


def _imports(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Modules that the file imports when it is loaded, with what it takes from each."""
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
    """`__name__ == "__main__"` and `TYPE_CHECKING`, which a trial does not enter."""
    names = {part.id for part in ast.walk(test) if isinstance(part, ast.Name)}
    attributes = {part.attr for part in ast.walk(test) if isinstance(part, ast.Attribute)}
    return bool({"__name__", "TYPE_CHECKING"} & (names | attributes))


def _sets_environment(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("environ", "putenv")
        for node in ast.walk(tree)
    )


def _is_beside(name: str, model_path: Path) -> bool:
    """Whether a trial would find the module in the file's folder or where it is started."""
    folders = [str(model_path.parent), str(Path.cwd())]
    return name not in sys.modules and PathFinder.find_spec(name, folders) is not None
