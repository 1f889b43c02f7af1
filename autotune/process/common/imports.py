"""Modules that this process imports: a call after one, other functions in them, their files."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial, wraps
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_SITES = {"site-packages", "dist-packages"}
_NAMED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
_LIBRARIES = tuple(f"{path}/" for named in _NAMED for path in (named, named.resolve()))
_NO_WORKLOADS = ("__main__", __name__.partition(".")[0], "torch")
_PACKAGE = Path(__file__).resolve().parents[2]
_UNDO: list[Callable[[], None]] = []


class AfterImport(MetaPathFinder):
    """An import hook that calls a function once a module is imported, at once if it already is.

    A script thus imports torch when it would without autotune, after it has set its environment,
    and one that only prints its help does not wait for torch.
    """

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self._name = name
        self._then = then
        if name in sys.modules:
            then()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """Return the module's own spec with a loader that calls back when it has run.

        A spec is no import: many scripts only check that torch is installed.
        """
        if fullname != self._name or self not in sys.meta_path:
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]  # the finders before found nothing
        found = (finder.find_spec(fullname, path, target) for finder in later)
        spec = next((spec for spec in found if spec is not None), None)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self._then()

            loader.exec_module = exec_module
        return spec


def is_installed(place: Path) -> bool:
    """Return True if a file lies in a place for installed packages, or in the standard library."""
    return not _SITES.isdisjoint(place.parts) or str(place).startswith(_LIBRARIES)


@cache
def is_ours(file: str) -> bool:
    """Return True for a file of this package."""
    return Path(file).is_relative_to(_PACKAGE)


@cache
def is_users(file: str) -> bool:
    """Return True for a file of the user's own code, which is neither installed nor ours."""
    return Path(file).is_absolute() and not (is_installed(Path(file)) or is_ours(file))


def own_modules(main: Path, folder: Path | None = None) -> dict[str, str]:
    """Return the imported modules of the user's own, each path with its SHA-256.

    These are the Python files that lie in no place for installed packages, except `main` itself,
    and for torch, which has a version. Paths are relative to `folder`, by default that of `main`.
    """
    folder, named = folder or main.resolve().parent, list[Path]()
    for name, module in list(sys.modules.items()):
        with suppress(Exception):  # whatever a package puts there, which may load on an attribute
            place = object.__getattribute__(module, "__dict__").get("__file__")
            if isinstance(place, str) and name.partition(".")[0] not in _NO_WORKLOADS:
                named.append(Path(place))
    # Modules without a file of their own have a relative path; one may be a link to elsewhere.
    paths = {path.resolve() for path in named if path.is_absolute() and not is_installed(path)}
    own = {
        os.path.relpath(path, folder): path
        for path in paths - {main.resolve()}
        if path.suffix == ".py" and path.is_file() and is_users(str(path))  # ours may be `__main__`
    }
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(own.items())
    }


def replace(owner: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Call `function` in place of an attribute of `owner`, which it gets as its first argument.

    Returns:
        A function that undoes this.
    """
    original = getattr(owner, name)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    setattr(owner, name, call)
    undo = partial(setattr, owner, name, original)
    _UNDO.append(undo)
    return undo


def undo_all() -> None:
    """Undo every replacement, the last one first."""
    while _UNDO:
        _UNDO.pop()()
