"""Words and sentences that a golden has and the code calls otherwise by now.

Both maps are empty again once the goldens are rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable

RENAMED: dict[str, str] = {}
"""Whole words of a golden: `"Scene": "SearchContext"` leaves `Scenery` alone."""
REPHRASED: dict[str, str | Callable[[re.Match[str]], str]] = {}
"""Sentences with other numbers now, as patterns; replaced in the golden and in today's text.

A number that both sentences have stays and is compared. Those of accuracy are compared in the
`margins` of the same event.
"""


def renamed(text: str) -> str:
    """Return `text` with each of the old words replaced by the new one, in one pass."""
    if not RENAMED:
        return text
    longest_first = sorted(RENAMED, key=len, reverse=True)
    either = "|".join(map(re.escape, longest_first))
    return re.sub(rf"(?<!\w)(?:{either})(?!\w)", lambda found: RENAMED[found[0]], text)


def rephrased(text: str) -> str:
    """Return `text` with each of the sentences of `REPHRASED` replaced."""
    for pattern, sentence in REPHRASED.items():
        text = re.sub(pattern, sentence, text)
    return text
