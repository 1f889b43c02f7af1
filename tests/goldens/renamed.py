"""Words and sentences that a golden has and the code calls otherwise by now.

Both maps are empty again once the goldens are rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from autotune.values.text import size

RENAMED: dict[str, str] = {
    "LeadLost": "IncumbentRevoked",
    "accuracy of what led": "validation of incumbents",
    "every configuration is known": "every configuration was tried",
    "nothing became a percent better in": "no improvement of 1 % in",
    "the time is up": "the time budget is spent",
    "the time is up before it is confirmed": "the time budget ended before it was confirmed",
    "the time is up, and the rounds so far do not decide": (
        "the time budget ended before the rounds decided"
    ),
    "what is left of the time is needed to confirm": "the time left is needed for the confirmation",
}
"""Whole words of a golden: `"Scene": "SearchContext"` leaves `Scenery` alone."""
_SEEDS = r"\(?(\d seeds?)\)?"
_DROPPED = r"gradient_cosine|trajectory_error|reference_path_error"
_NEW = r"buffer_error|rounding_(?:path|reach|buffer)_error"
REPHRASED: dict[str, str | Callable[[re.Match[str]], str]] = {
    rf"(?m)^\S*\.gate\.(?:{_DROPPED}) .*\n": "",
    rf'\\n \\"(?:{_DROPPED}|{_NEW})\\": [^,]+,': "",
    rf"accuracy: [\d.e+]+ % worse than allowed over {_SEEDS}": r"accuracy: too low, \1",
    rf"accuracy: not proven to be within what is allowed over {_SEEDS}": r"accuracy: in doubt, \1",
    rf"accuracy: \w+ \S+ is \S+ (?:below|above) the limit \S+ {_SEEDS}": r"accuracy: too low, \1",
    rf"accuracy: \w+ \S+ may be (?:below|above) the limit \S+ {_SEEDS}": r"accuracy: in doubt, \1",
    r"memory: [^\"]+? is (\S+ %) over the limit [\d.]+ \w+": r"memory: \1 over the limit",
    r"not run: about (\d+) bytes expected from batches of ([\d and]+), with a limit of (\d+)": (
        lambda found: (
            f"not run: about {size(int(found[1]))} expected, from batches of {found[2]}; "
            f"the limit is {size(int(found[3]))}"
        )
    ),
    # What a CPU does not have, in lines and in JSON.
    r"(?m)^\S*(?:device_memory|busy_seconds|token_count) null\n": "",
    r"\"(?:clock_mhz|device_memory|busy_seconds|token_count|joules)\": null, ": "",
    r"\"(?:tokens_per_second|joules_per_sample)\": null, ": "",
    r", \"watts\": null": "",
    # The knob of deterministic mode, which is part of a study's identity.
    r"(?m)^.*autotune search --deterministic .*\n": "",
    r"(?m)^\S*\.deterministic (?:false|\[false\])\n": "",
    r"\\?\"deterministic\\?\": (?:false|\[false\]), ": "",
    r"(?m)^(\S*\.fingerprint) \"[0-9a-f]{8}\"$": r"\1",
    r"(\d+) that may be as fast as each other, timed again": (
        r"re-timing \1 candidates that may be equally fast"
    ),
}
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
