"""What a study is of: what must not change while it goes on, and what is said where it did."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

ALIKE = 0.01
"""By how much two limits of memory may differ, as a share, and be one machine's."""
_LONGEST = 60
_GIB = 1 << 30


def differences(known: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """A line for each fact that is another now than in the study, or only in one of them."""
    now = json.loads(json.dumps(identity))
    return [
        f"  {name}: {_short(known.get(name))} in the study, {_short(now.get(name))} now"
        for name in {**now, **known}
        if not _is_same(name, known.get(name), now.get(name))
    ]


def _is_same(name: str, known: Any, now: Any) -> bool:
    """A machine has some pages of memory more or less from boot to boot, and is the same."""
    if name == "memory_limit_bytes" and isinstance(known, int) and isinstance(now, int):
        return math.isclose(known, now, rel_tol=ALIKE)
    return bool(known == now)


def fingerprint_of(identity: Mapping[str, Any]) -> str:
    """Eight hex digits that change when anything of an identity does."""
    limit = round(identity.get("memory_limit_bytes", 0) / _GIB)
    facts = json.dumps({**identity, "memory_limit_bytes": limit}, sort_keys=True).encode()
    return hashlib.sha256(facts).hexdigest()[:8]


def _short(fact: Any) -> str:
    text = json.dumps(fact)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
