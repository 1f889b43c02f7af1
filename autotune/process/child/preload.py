"""Import the installed packages that a workload imports, found in its source without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from autotune.process.common.imports import is_installed
from autotune.scripting.trackers import TRACKERS

_OURS = __name__.partition(".")[0]
_READS = ("get", "copy", "items", "keys", "values")
_Import = tuple[int, str, list[str]]
_Outer = tuple[Path, str, list[str]]


class _SetsVariables(Exception):  # noqa: N818 - it ends a walk
    """A file of the user's own may set environment variables."""


@cache
def preload(model_path: Path) -> None:
    """Import what the file imports from installed packages; errors are left to the trial.

    The same goes for imports of the user's own modules, which themselves run only in trials. These
    are modules beside the file, and what Python finds outside of the places for installed packages.
    Experiment trackers are left out, because some read their switches when they are imported.
    Nothing is imported if the file may set environment variables first, nor what follows a module
    of the user's own that may.
    """
    with suppress(_SetsVariables):
        for _, name, attributes in _outer_imports(model_path, model_path, set()):
            _import(name, attributes, model_path)


@cache
def sets_variables_before_torch(script: Path) -> bool:
    """Return True if the script may set variables, or its own modules before torch is imported."""
    try:
        found = _outer_imports(script, script, set())
        any(path == script and name.partition(".")[0] == "torch" for path, name, _ in found)
    except _SetsVariables:
        return True
    return False


def _outer_imports(path: Path, script: Path, seen: set[Path]) -> Iterator[_Outer]:
    """Yield the imports of installed packages that a file makes when it is loaded, in order.

    Each comes with its file: those of the user's own modules that it imports are among them.

    Args:
        path: the file.
        script: the file beside which modules of the user's own lie.
        seen: files that were looked into, which is changed.

    Raises:
        _SetsVariables: the next file may set environment variables.
    """
    seen.add(path)
    with suppress(OSError, SyntaxError, ValueError):
        tree = ast.parse(path.read_bytes())
        if sets_environment(tree):
            raise _SetsVariables
        for level, name, attributes in _imports(tree):
            for own in _own_files((level, name, attributes), script, path.parent):
                if own not in seen:
                    yield from _outer_imports(own, script, seen)
            if not level:
                yield path, name, attributes


def _own_files(found: _Import, script: Path, folder: Path) -> Iterator[Path]:
    """Yield the files of the user's own that an import of a file in `folder` may run."""
    level, name, attributes = found
    parts = [part for part in name.split(".") if part]
    if parts[:1] == [_OURS]:
        return
    above = [folder, *folder.parents][level - 1 : level]
    places = above if level else _own_folders(parts[0], script)
    stems = [parts[:length] for length in range(1, len(parts) + 1)]
    stems += [[*parts, attribute] for attribute in attributes]
    for at in (place.joinpath(*stem) for place in places for stem in stems):
        yield from filter(Path.is_file, (at.with_suffix(".py"), at / "__init__.py"))


def _import(name: str, attributes: list[str], model_path: Path) -> None:
    top = name.partition(".")[0]
    folders = [str(folder) for folder in _own_folders(top, model_path)]
    is_own = top not in sys.modules and PathFinder.find_spec(top, folders) is not None
    if top not in TRACKERS and not is_own:
        # A module may raise anything when it is imported, SystemExit included.
        with suppress(BaseException):
            __import__(name, fromlist=attributes)


def shadowed(model_path: Path) -> list[str]:
    """Return the modules beside the workload that it could not import, or not run, itself.

    Their name is taken by another one, or a package that looks for it has found and run the file.
    """
    own = {entry.stem for entry in model_path.parent.iterdir()} - {model_path.stem, _OURS}
    return sorted(n for n in own if getattr(sys.modules.get(n), "__file__", None))


def _imports(tree: ast.Module) -> Iterator[_Import]:
    """Yield the imports that the file makes when it is loaded: level, module, names taken from it.

    The level counts the dots of a relative import.
    """
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.Import(names):
                yield from ((0, alias.name, []) for alias in names)
            case ast.ImportFrom(name, names, level):
                yield level or 0, name or "", [one.name for one in names if one.name != "*"]
            case _:
                pending += ast.iter_child_nodes(node)


def _own_folders(name: str, script: Path) -> list[Path]:
    """Return the folders in which a module of the user's own may lie.

    They are the script's, the working directory, and where Python finds the module if that is no
    place for installed packages, as for one that is installed editable.
    """
    folders = [script.parent, Path.cwd()]
    with suppress(Exception):  # a finder may raise anything
        spec = find_spec(name)
        if spec is not None and spec.has_location and not is_installed(Path(str(spec.origin))):
            place = Path(str(spec.origin)).parent
            folders.append(place if spec.submodule_search_locations is None else place.parent)
    return folders


def sets_environment(tree: ast.Module) -> bool:
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
