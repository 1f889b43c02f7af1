"""Tell which installed packages a script has imported, which a warm host may do before it."""

from __future__ import annotations

import sys
from pathlib import Path

from autotune.process.common.imported_files import imported_files, is_installed
from autotune.scripting.surroundings.environment import sets_environment

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
        new = [(name, place) for name, place in imported_files() if name not in self._before]
        if any(sets_environment(place) for _, place in new if not is_installed(place)):
            return ()
        return tuple(name for name, place in new if self._is_shared(name, place))[:_MOST]

    def _is_shared(self, name: str, place: Path) -> bool:
        return is_installed(place) and str(place).startswith(self._places) and _is_public(name)


def _is_public(name: str) -> bool:
    parts = name.split(".")
    return len(parts) <= _DEEPEST and not any(part.startswith("_") for part in parts)
