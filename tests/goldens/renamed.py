"""Words that a golden has and the code calls otherwise by now.

Each stands for whole words of the golden's text: `"Scene": "SearchContext"` leaves `Scenery` alone.
The map is empty again once the goldens are rewritten.
"""

from __future__ import annotations

import re

RENAMED: dict[str, str] = {"LeadLost": "IncumbentRevoked"}


def renamed(text: str) -> str:
    """Return `text` with each of the old words replaced by the new one, in one pass."""
    if not RENAMED:
        return text
    longest_first = sorted(RENAMED, key=len, reverse=True)
    either = "|".join(map(re.escape, longest_first))
    return re.sub(rf"(?<!\w)(?:{either})(?!\w)", lambda found: RENAMED[found[0]], text)
