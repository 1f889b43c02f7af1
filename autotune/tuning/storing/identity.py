"""What a study is of: what must not change while it goes on, and what is said where it did."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_LONGEST = 60


def differences(known: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """A line for each fact that is another now than in the study, or only in one of them."""
    now = json.loads(json.dumps(identity))
    return [
        f"  {name}: {_short(known.get(name))} in the study, {_short(now.get(name))} now"
        for name in {**now, **known}
        if known.get(name) != now.get(name)
    ]


def fingerprint_of(identity: Mapping[str, Any]) -> str:
    """Eight hex digits that change when anything of an identity does."""
    facts = json.dumps(identity, sort_keys=True).encode()
    return hashlib.sha256(facts).hexdigest()[:8]


def _short(fact: Any) -> str:
    text = json.dumps(fact)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
