"""Write docs/knobs.md from the knobs: `python docs/knobs_page.py > docs/knobs.md`."""

from __future__ import annotations

import sys

from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Integers, Knob, OneOf, spelled

_EFFECTS = {
    "exact": "nothing beyond what differs from run to run: the same training, sooner",
    "numerics": "rounding",
    "statistics": "the course of training",
}

_HEAD = """\
# Knobs

The settings that autotune can tune, in the order in which configurations list them. `make docs`
writes this page from the classes in `autotune/knobs/`. `autotune knobs` suggests values for this
machine, and says which it cannot have.

[Knobs of your own](own_knobs.md) stand in a space file.
`autotune knobs model.py` also says which knobs that model cannot use.
"""


def knobs_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *map(_section, ALL_KNOBS)])


def _section(knob: Knob) -> str:
    rows = {
        "Values": _values(knob),
        "Default": f"`{spelled(knob.default)}`",
        "Pays": knob.pays,
        "Hurts": knob.hurts,
        "Can change": _EFFECTS[knob.effect],
        "PyTorch": f"`{knob.call}`",
        "Source": f"<{knob.source}>",
    }
    table = [f"| {name} | {text} |" for name, text in rows.items()]
    return "\n".join([f"## {knob.name}", "", knob.summary, "", "| | |", "|---|---|", *table, ""])


def _values(knob: Knob) -> str:
    match knob.values:
        case OneOf(options):
            text = ", ".join(f"`{spelled(option)}`" for option in options)
        case Integers(low, high, nullable):
            text = f"whole numbers from {low} to {high}" + (", or `null`" if nullable else "")
    with_or_not = "without" if knob.has_effect(None) else "with"
    return f"{text}; only {with_or_not} `{knob.needs}`" if knob.needs else text


if __name__ == "__main__":
    sys.stdout.write(knobs_page())
