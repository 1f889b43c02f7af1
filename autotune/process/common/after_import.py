"""Call a function once a module is imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any


class AfterImport(MetaPathFinder):
    """An import hook that calls a function once a module is imported, at once if it already is.

    So a script imports torch when it does without us, after it has set its environment, and one
    that only prints its help does not wait for torch.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then
        if name in sys.modules:
            then()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """Return the module's own spec with a loader that calls back when it has run.

        A spec alone is no import: many scripts only check that torch is installed.
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
                self._imported()

            loader.exec_module = exec_module
        return spec

    def _imported(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then()
