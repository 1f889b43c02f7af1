"""Write docs/reference/settings.md from the knobs.

python docs/knobs_page.py > docs/reference/settings.md
"""

from __future__ import annotations

import sys

from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Integers, Knob, OneOf, spelled

_EFFECTS = {
    "numerics": "rounding",
    "statistics": "the course of training",
}

_HEAD = """\
# Settings

The settings that autotune can tune. `make docs` writes this page. `autotune settings` lists the
values that this machine can have; `autotune settings model.py` also says which settings that model
cannot use. A [space file](space-file.md) names the settings that a search varies, and can
add [settings of your own](own-settings.md). Without "Can change", a setting changes only what
differs from run to run anyway.
"""


def knobs_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *map(_section, ALL_KNOBS)])


def _section(knob: Knob) -> str:
    effect = _EFFECTS.get(knob.effect)
    facts = {
        "Pays": knob.pays,
        "Hurts": knob.hurts,
        **({"Can change": f"{effect}."} if effect else {}),
        "Values": f"{_values(knob)}. Default: `{spelled(knob.default)}`.",
        "PyTorch": f"`{knob.call}` ([source]({knob.source}))",
    }
    lines = [f"- **{name}:** {text}" for name, text in facts.items()]
    return "\n".join([f"## {knob.name}", "", knob.summary, "", *lines, ""])


def _values(knob: Knob) -> str:
    match knob.values:
        case OneOf(options):
            text = ", ".join(f"`{spelled(option)}`" for option in options)
        case Integers(low, high, nullable):
            text = f"whole numbers from {low} to {high}" + (", or `null`" if nullable else "")
    return f"{text}; only with `{knob.needs}`" if knob.needs else text


if __name__ == "__main__":
    sys.stdout.write(knobs_page())
