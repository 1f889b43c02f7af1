"""Tell which installed packages a script has imported, which a warm host may do before it."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from autotune.scripting.surroundings.environment import sets_environment

_SITES = {"site-packages", "dist-packages"}
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_OURS = __name__.partition(".")[0]
# Names that a request to a host has room for, and how deep they lie: `torchvision.transforms.v2`.
_MOST, _DEEPEST = 2000, 3


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
        new = [(name, place) for name, place in _files() if name not in self._before]
        if any(sets_environment(place) for _, place in new if not is_installed(place)):
            return ()
        return tuple(name for name, place in new if self._is_shared(name, place))[:_MOST]

    def _is_shared(self, name: str, place: Path) -> bool:
        return is_installed(place) and str(place).startswith(self._places) and _is_public(name)


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the modules that have a file, with it; none is asked, since some load when they are."""
    for name, module in list(sys.modules.items()):
        with suppress(Exception):  # whatever a package puts there
            place = object.__getattribute__(module, "__dict__").get("__file__")
            if isinstance(place, str) and name.partition(".")[0] not in ("__main__", _OURS):
                yield name, Path(place)


def is_installed(place: Path) -> bool:
    """Return True if a file lies in a place for installed packages, or in the standard library."""
    return not _SITES.isdisjoint(place.parts) or str(place).startswith(_LIBRARIES)


def _is_public(name: str) -> bool:
    parts = name.split(".")
    return len(parts) <= _DEEPEST and not any(part.startswith("_") for part in parts)
