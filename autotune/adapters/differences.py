"""Settings that a trainer of another library has otherwise than a best.yaml says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.configuration.mismatch import report
from autotune.production import Best

_LOADER = ("batch_size", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor")


def loader_settings(loader: Any) -> dict[str, Any]:
    """Return the arguments of a DataLoader; none for what is no DataLoader."""
    return {name: getattr(loader, name) for name in _LOADER if hasattr(loader, name)}


def warn_of(best: Best, who: str, has: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """Warn of each setting that `who` has otherwise.

    Raises:
        MismatchError: in place of the warning, if the file was loaded with `strict`.
    """
    lines = [
        f"  {name}: {said[name]} in the file, {has[name]} in {who}"
        for name in has
        if name in said and _plain(has[name]) != _plain(said[name])
    ]
    report(f"the answer of study {best.answer.provenance.study}", lines, strict=best.is_strict)


def _plain(value: Any) -> Any:
    """Return a value such that what means the same is equal: an enumeration's member its value."""
    return getattr(value, "value", value)
