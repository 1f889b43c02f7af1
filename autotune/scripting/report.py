"""What became of the settings, told on stderr when a script has ended."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotune.knobs import KNOBS
from autotune.knobs.base import spelled
from autotune.script import Plan, is_harmless
from autotune.text import clean

if TYPE_CHECKING:
    from autotune.scripting.interpose import Interposition


def report(plan: Plan, interposition: Interposition | None) -> None:
    """Say what was applied, what the script overrode, and what could not be applied."""
    # The script may have put something else in the place of sys.stderr, or have none.
    if sys.__stderr__ is not None and not sys.__stderr__.closed:
        for line in lines(plan, interposition):
            print(clean(f"autotune: {line}"), file=sys.__stderr__)


def lines(plan: Plan, interposition: Interposition | None) -> Iterator[str]:
    """The report; without an interposition, of a script that never imported torch."""
    if interposition is None:
        yield "nothing was applied: the script did not import torch"
        return
    overridden, failed = interposition.overridden(), interposition.failed
    fine = [name for name in plan.asked if name not in overridden and name not in failed]
    applied = [_setting(plan, name) for name in fine if _says_something(plan, name)]
    told = [name for name in plan.by_flag if name not in overridden and name not in failed]
    applied += [f"{_setting(plan, name)} (by {plan.by_flag[name]})" for name in told]
    yield f"applied: {', '.join(applied) or 'nothing'}"
    for name, (wanted, found) in overridden.items():
        if name in plan.by_flag:
            yield f"not applied: {_by_flag(plan, name)} (the script runs with {spelled(found)})"
        else:
            yield f"overridden by the script: {name}={spelled(found)} instead of {spelled(wanted)}"
    without = {_setting(plan, name): failed[name] for name in plan.asked if name in failed}
    without |= {_by_flag(plan, name): failed[name] for name in plan.by_flag if name in failed}
    without |= plan.withheld
    if interposition.seen.batch_size is not None:  # which says it better
        without.pop(_setting(plan, "batch_size"), None)
    for reason in dict.fromkeys(without.values()):
        settings = ", ".join(name for name, why in without.items() if why == reason)
        yield f"not applied: {settings} ({reason})"
    yield from _batch_size(plan, interposition)


def _setting(plan: Plan, name: str) -> str:
    return f"{name}={spelled(plan.settings[name])}"


def _by_flag(plan: Plan, name: str) -> str:
    return f"{_setting(plan, name)} by {plan.by_flag[name]}"


def _says_something(plan: Plan, name: str) -> bool:
    """Whether it is more than "whatever torch takes"."""
    return plan.settings[name] is not None or not is_harmless(KNOBS[name])


def _batch_size(plan: Plan, interposition: Interposition) -> Iterator[str]:
    own, wanted = interposition.seen.batch_size, plan.settings["batch_size"]
    if "batch_size" not in plan.by_flag and own not in (None, wanted):
        yield (
            f"not applied: batch_size={wanted} (the script has {own}, and only its own flag can "
            "change it: --map batch_size=--FLAG)"
        )
