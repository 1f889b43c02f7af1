"""A confirmation that decides after few rounds: what it decides is then often chance."""

from collections.abc import Callable

_MODULE = "autotune.comparison.race"


def decide_after(rounds: int, set_attribute: Callable[[str, object], object]) -> None:
    """Let the sequential test look once, after `rounds`, at an interval of 50 %."""
    set_attribute(f"{_MODULE}.LOOKS", (rounds,))
    set_attribute(f"{_MODULE}.confidence", lambda family: 0.5)
