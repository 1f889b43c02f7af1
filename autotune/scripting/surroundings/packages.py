"""Tell which installed packages a script has imported, which a warm host may do before it."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Collection
from pathlib import Path

from autotune.scripting.surroundings.environment import sets_environment

_SITES = {"site-packages", "dist-packages"}
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_OURS = __name__.partition(".")[0]
# Names that a request to a host has room for, and how deep they lie: `torchvision.transforms.v2`.
_MOST, _DEEPEST = 2000, 3


def imported_packages(before: Collection[str]) -> tuple[str, ...]:
    """Return the public modules of installed packages that are not in `before`, as imported.

    Nothing is returned if a file of the user's own may have set environment variables, which
    packages read when they are imported.
    """
    new = [(name, place) for name, place in _places() if name not in before]
    if any(sets_environment(place) for _, place in new if not _is_installed(place)):
        return ()
    return tuple(name for name, place in new if _is_installed(place) and _is_public(name))[:_MOST]


def _places() -> list[tuple[str, Path]]:
    """Return the modules that have a file, with it, in the order in which they were imported."""
    found = [(name, getattr(module, "__file__", None)) for name, module in sys.modules.items()]
    return [
        (name, Path(place))
        for name, place in found
        if isinstance(place, str) and name.partition(".")[0] not in ("__main__", _OURS)
    ]


def _is_installed(place: Path) -> bool:
    return not _SITES.isdisjoint(place.parts) or str(place).startswith(_LIBRARIES)


def _is_public(name: str) -> bool:
    parts = name.split(".")
    return len(parts) <= _DEEPEST and not any(part.startswith("_") for part in parts)
