"""Find the file that the command line names, and distinguish a script from a model.py."""

from __future__ import annotations

import ast
import shutil
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from autotune.values.errors import UsageError
from autotune.values.text import did_you_mean

_MODEL_PARTS = frozenset({"build_model", "build_dataset", "compute_loss"})


def import_folder(path: Path, module: str | None) -> Path:
    """Return the folder of a program's file, or the one from which -m imports it."""
    return path.resolve().parents[(module or "").count(".")]


def module_file(name: str) -> Path:
    """Return the file that `python -m name` runs; no package is imported for it.

    Raises:
        UsageError: there is no such module, or it is not Python source.
    """
    places: list[str] | None = [str(Path.cwd()), *sys.path]
    spec = None
    for number, part in enumerate(parts := name.split(".")):
        spec = _spec(".".join(parts[: number + 1]), places)
        if spec is None:
            folders = filter(Path.is_dir, map(Path, places or ()))
            known = {entry.stem for folder in folders for entry in folder.iterdir()}
            where = ".".join(parts[:number]) or "this directory or among the installed packages"
            hint = did_you_mean(part, known)
            raise UsageError(f"-m {name}: there is no module {part} in {where}.{hint}")
        places = spec.submodule_search_locations
    if places is not None:
        spec = _spec(f"{name}.__main__", places)
    if spec is None:
        raise UsageError(f"-m {name}: the package has no __main__. Name a module in it.")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise UsageError(f"-m {name}: it is not Python source. Name a module that is.")
    return Path(spec.origin)


def _spec(name: str, places: list[str] | None) -> ModuleSpec | None:
    """Return the spec of a module in these places, or from another finder: an editable install."""
    if places is None:
        return None
    if found := PathFinder.find_spec(name, places):
        return found
    finders = (finder for finder in sys.meta_path if finder is not PathFinder)
    specs = (finder.find_spec(name, places) for finder in finders)
    return next((spec for spec in specs if spec is not None), None)


def is_program(path: Path) -> bool:
    """Return True if a file is Python source, by its name or first line.

    Raises:
        UsageError: its first line names the Python of another environment.
    """
    if path.suffix == ".py" or not path.is_file():
        return path.is_file()
    interpreter = _interpreter(path)
    if interpreter is None:
        return False
    here = Path(sys.executable)
    if interpreter.parent.name == "bin" and interpreter.parent.resolve() != here.parent.resolve():
        raise UsageError(
            f"{path} runs with {interpreter}, autotune with {here}. Install autotune there."
        )
    return True


def console_command(word: str) -> Path | None:
    """Return the file of an installed command that is a Python program; None if there is none.

    Raises:
        UsageError: it is one of another environment.
    """
    if "/" in word:
        return None
    beside = Path(sys.executable).parent / word
    found = beside if beside.is_file() else shutil.which(word)
    return Path(found) if found and is_program(Path(found)) else None


def _interpreter(path: Path) -> Path | None:
    """Return the Python that the first line of a file names; None if it names none."""
    try:
        lines = path.read_bytes()[:1024].decode(errors="replace").splitlines()
    except OSError:
        return None
    if not lines or not lines[0].startswith("#!"):
        return None
    words = lines[0].removeprefix("#!").split()
    # Long paths do not fit into a first line, so installers write a line of sh that Python skips.
    if words and words[0] == "/bin/sh" and lines[1:] and lines[1].startswith("'''exec'"):
        words = lines[1].removeprefix("'''exec'").replace('"', " ").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    is_python = bool(words) and Path(words[0]).name.startswith("python")
    return Path(words[0]) if is_python else None


def is_script(path: Path) -> bool:
    """Return True if a file defines no part of a model.py, or trains by itself and lacks a part.

    A file that cannot be parsed counts as a model.py, so that its error is reported as usual. So
    does one that imports all names of a module beside it, unless it trains and defines no part.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    parts = {name for node in tree.body for name in _bound_by(node)} & _MODEL_PARTS
    imports_all = any(_imports_all(node, path) for node in tree.body)
    if not parts:
        return _trains(tree) or not imports_all
    return _trains(tree) and not imports_all and parts != _MODEL_PARTS


def _trains(tree: ast.Module) -> bool:
    """Return True if a file mentions `backward`, or calls `fit` or a class named like `Trainer`.

    Within a part of a model.py, something other than the model is fitted.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "backward":
            return True
    rest = [node for node in tree.body if not _bound_by(node) & _MODEL_PARTS]
    for node in ast.walk(ast.Module(rest, [])):
        match node:
            case ast.Call(ast.Attribute(attr="fit")):
                return True
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name)) if name.endswith("Trainer"):
                return True
    return False


def _imports_all(statement: ast.stmt, path: Path) -> bool:
    """Return True for `from module import *` of a module beside the file."""
    if not isinstance(statement, ast.ImportFrom) or statement.names[0].name != "*":
        return False
    place = path.parent / (statement.module or "").partition(".")[0]
    return statement.level != 0 or place.is_dir() or place.with_suffix(".py").exists()


def _bound_by(statement: ast.stmt) -> set[str]:
    """Return the names that a top-level statement binds, as far as its form shows them."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.ImportFrom(names=names):
            return {alias.asname or alias.name for alias in names}
        case ast.Assign(targets=targets):
            parts = (part for target in targets for part in ast.walk(target))
            return {part.id for part in parts if isinstance(part, ast.Name)}
        case _:
            return set()
