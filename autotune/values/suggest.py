"""Suggest the nearest known word for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the nearest known word; empty if none is near."""
    nearest = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""
