"""The identity of a study: facts that must not change between its runs, and their comparison."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

ALIKE = 0.01
"""Relative difference up to which two memory limits count as one machine's."""
_LONGEST = 60
_GIB = 1 << 30


def differences(known: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """Return a line for each fact that differs between the study and now, or is only in one."""
    now = json.loads(json.dumps(identity))
    return [
        f"  {name}: {_short(known.get(name))} in the study, {_short(now.get(name))} now"
        for name in {**now, **known}
        if not _is_same(name, known.get(name), now.get(name))
    ]


def _is_same(name: str, known: Any, now: Any) -> bool:
    """Compare two values; memory limits may differ by `ALIKE`, as they do from boot to boot."""
    if name == "memory_limit_bytes" and isinstance(known, int) and isinstance(now, int):
        return math.isclose(known, now, rel_tol=ALIKE)
    return bool(known == now)


def fingerprint_of(identity: Mapping[str, Any]) -> str:
    """Return eight hex digits that change when a fact of an identity does."""
    limit = round(identity.get("memory_limit_bytes", 0) / _GIB)
    facts = json.dumps({**identity, "memory_limit_bytes": limit}, sort_keys=True).encode()
    return hashlib.sha256(facts).hexdigest()[:8]


def _short(fact: Any) -> str:
    text = json.dumps(fact)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
