"""Lines that `autotune run` prints before a script starts: what it is to apply, and what not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.calling.flag import Flag
from autotune.configuration.script import Plan
from autotune.knobs import knob_named
from autotune.knobs.base import spelled
from autotune.values.text import by_reason

_ALLOW = "--allow numerics"


def start_lines(
    plan: Plan,
    maps: Sequence[Flag],
    measured: Sequence[str],
    arguments: Sequence[str],
    doubt: str,
) -> Iterator[str]:
    """Yield the lines; what is left to PyTorch's defaults, here and when measured, has none.

    Args:
        plan: the settings and how they reach the script.
        maps: the ways in which the script takes settings.
        measured: those of them that the search measured, as `--map` spells them.
        arguments: the script's arguments as they were typed.
        doubt: why the file's evidence may not hold for this training; empty if it does.
    """
    if doubt and plan.withheld:
        more = any(_ALLOW in reason for reason in plan.withheld.values())
        others = f"; {_ALLOW} applies the others" if more else ""
        flags = plan.by_flag.items()
        named = [f"{name} by {way}" for name, way in flags if knob_named(name).effect != "exact"]
        kept = f", and {', '.join(named)}," if named else ""
        yield f"{doubt}: only settings that keep the arithmetic{kept} are applied{others}"
    told = [plan.setting(name) for name in plan.told]
    told += [
        f"{plan.setting(flag.knob)} by {flag.name}{_unmeasured(flag, measured)}"
        f"{_in_place_of(plan, flag, arguments)}"
        for flag in maps
        if flag.knob in plan.by_flag and flag.carries(plan.settings[flag.knob])
    ]
    if told:
        yield f"to apply: {', '.join(told)}"
    for reason, settings in by_reason(plan.withheld).items():
        yield f"left out: {', '.join(settings)} ({reason})"


def _unmeasured(flag: Flag, measured: Sequence[str]) -> str:
    """Return a remark on a flag that may change the trained model and that no search measured."""
    is_known = flag.text in measured or knob_named(flag.knob).effect == "exact"
    return "" if is_known else " (a flag that the search did not measure)"


def _in_place_of(plan: Plan, flag: Flag, arguments: Sequence[str]) -> str:
    """Return a remark on a typed value that the setting replaces; empty without one."""
    typed = flag.given(arguments)
    if typed is None or typed == spelled(plan.settings[flag.knob]):
        return ""
    return f", in place of your {typed}"
