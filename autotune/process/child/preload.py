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
from autotune.scripting.surroundings import sets_environment, tree_sets_environment
from autotune.scripting.trackers import TRACKERS

_OURS = __name__.partition(".")[0]
_Import = tuple[int, str, list[str]]


@cache
def preload(model_path: Path, seen: tuple[str, ...] = ()) -> None:
    """Import what the file imports from installed packages; errors are left to the trial.

    Other modules are the user's code, which runs in trials only: those beside the file, and what
    Python finds in no place for installed packages. Experiment trackers are left out, because some
    read their switches when they are imported. Nothing is imported if the file may set environment
    variables first, nor what follows a module of the user's own that may.

    Args:
        model_path: the file.
        seen: modules of installed packages that a run of the file has imported from other places.
    """
    with suppress(OSError, SyntaxError, ValueError):
        tree = ast.parse(model_path.read_bytes())
        if tree_sets_environment(tree):
            return
        own: set[Path] = set()
        for level, name, attributes in _imports(tree):
            if _sets_variables((level, name, attributes), model_path, model_path.parent, own):
                return
            if not level:
                _import(name, attributes, model_path)
        for name in seen:
            _import(name, [], model_path)


def _import(name: str, attributes: list[str], model_path: Path) -> None:
    top = name.partition(".")[0]
    folders = [str(folder) for folder in _own_folders(top, model_path)]
    is_own = top not in sys.modules and PathFinder.find_spec(top, folders) is not None
    if top not in TRACKERS and not is_own:
        # A module may raise anything when it is imported, SystemExit included.
        with suppress(BaseException):
            __import__(name, fromlist=attributes)


@cache
def sets_variables_before_torch(script: Path) -> bool:
    """Return True if a module beside the script may set variables before torch is imported."""
    own: set[Path] = set()
    with suppress(OSError, SyntaxError, ValueError):
        for found in _imports(ast.parse(script.read_bytes())):
            if found[1].partition(".")[0] == "torch":
                return False
            if _sets_variables(found, script, script.parent, own):
                return True
    return False


def _sets_variables(found: _Import, script: Path, folder: Path, seen: set[Path]) -> bool:
    """Return True if an import runs a file of the user's own that may set variables.

    Args:
        found: an import, as `_imports` yields it.
        script: the file beside which modules of the user's own lie.
        folder: folder of the file that has the import, where relative names begin.
        seen: files that were looked into, which is changed.
    """
    level, name, attributes = found
    parts = [part for part in name.split(".") if part]
    if parts[:1] == [_OURS]:
        return False
    above = [folder, *folder.parents][level - 1 : level]
    places = above if level else _own_folders(parts[0], script)
    stems = [parts[:length] for length in range(1, len(parts) + 1)]
    stems += [[*parts, attribute] for attribute in attributes]
    paths = [place.joinpath(*stem) for place in places for stem in stems]
    for path in (file for at in paths for file in (at.with_suffix(".py"), at / "__init__.py")):
        if path in seen or path == script or not path.is_file():
            continue
        seen.add(path)
        if sets_environment(path):
            return True
        with suppress(OSError, SyntaxError, ValueError):
            inner = _imports(ast.parse(path.read_bytes()))
            if any(_sets_variables(one, script, path.parent, seen) for one in inner):
                return True
    return False


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
