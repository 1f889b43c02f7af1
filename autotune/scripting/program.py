"""Runs a script, or a module, as `python` would: same `__main__`, arguments and import path.

Not through `runpy`, which takes `__main__` away again when the script has ended: its exit handlers
and threads may still pickle what they find there.
"""

from __future__ import annotations

import builtins
import importlib.util
import multiprocessing
import re
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run the file `path`; whatever it raises comes out.

    Side effects: replaces `sys.modules["__main__"]`, `sys.argv` and the first import path.
    """
    place = str(Path(path).absolute())
    module = ModuleType("__main__")
    module.__loader__ = SourceFileLoader("__main__", place)
    module.__file__ = place
    module.__dict__["__cached__"] = None
    sys.argv[:] = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    _execute(compile(Path(path).read_bytes(), place, "exec", dont_inherit=True), module)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module, or a package's `__main__`, as `python -m` does.

    Raises:
        SystemExit: there is no such module.
        BaseException: whatever it raises.
    """
    sys.argv[:] = ["-m", *arguments]
    sys.path.insert(0, str(Path.cwd()))
    spec = _spec_of(name)
    module = importlib.util.module_from_spec(spec)
    module.__name__ = "__main__"
    sys.argv[0] = str(spec.origin)
    code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    _execute(code, module)


def _spec_of(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the package itself imports
        spec = None
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise SystemExit(f"{sys.executable}: No module named {name}")
    return spec


def is_run_by_workers(start_method: str | None = None) -> bool:
    """Whether a worker process would run the whole script again before it does its work.

    Args:
        start_method: of the workers; None stands for what `multiprocessing` would take.
    """
    own = multiprocessing.get_start_method(allow_none=True)  # asked so, it decides on none
    if (start_method or own or multiprocessing.get_all_start_methods()[0]) == "fork":
        return False
    main = sys.modules["__main__"]
    # Nobody imports a package's __main__ again.
    if getattr(getattr(main, "__spec__", None), "name", "").endswith("__main__"):
        return False
    try:
        source = Path(getattr(main, "__file__", None) or "").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return re.search(r"^if\b.*\b__name__\b", source, re.MULTILINE) is None


def _execute(code: CodeType, module: ModuleType) -> None:
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102 - the script that the user asked to run


class AfterImport(MetaPathFinder):
    """Calls a function once, when a module has been imported; at once where it has been already.

    So a script that sets its environment before it imports torch finds it in force, and one that
    only prints its help is not kept waiting for torch.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then
        if name in sys.modules:
            then()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """The module's own spec, whose loader calls back when it is done.

        To be asked for it is not to be imported: many a script looks first whether there is torch.
        """
        if fullname != self._name or self not in sys.meta_path:
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]  # those before it found nothing
        found = (finder.find_spec(fullname, path, target) for finder in later)
        spec = next((spec for spec in found if spec is not None), None)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._imported()

            loader.exec_module = exec_module
        return spec

    def _imported(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then()
