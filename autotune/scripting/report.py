"""What became of the settings, told on stderr when a script has ended."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotune.knobs.base import spelled
from autotune.script import Plan
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
    overridden = interposition.overridden()
    failed = {n: interposition.failed[n] for n in plan.asked if n in interposition.failed}
    fine = [name for name in plan.asked if name not in overridden and name not in failed]
    applied = [f"{n}={spelled(plan.settings[n])}" for n in fine if plan.settings[n] is not None]
    applied += [f"{setting} (by {flag})" for setting, flag in plan.by_flag.items()]
    yield f"applied: {', '.join(applied) or 'nothing'}"
    for name, (wanted, found) in overridden.items():
        yield f"overridden by the script: {name}={spelled(found)} instead of {spelled(wanted)}"
    without = {f"{n}={spelled(plan.settings[n])}": reason for n, reason in failed.items()}
    without |= plan.withheld
    for reason in dict.fromkeys(without.values()):
        settings = ", ".join(name for name, why in without.items() if why == reason)
        yield f"not applied: {settings} ({reason})"
    yield from _batch_size(plan, interposition)


def _batch_size(plan: Plan, interposition: Interposition) -> Iterator[str]:
    own = interposition.seen.batch_size
    if None not in (own, plan.batch_size) and own != plan.batch_size:
        yield (
            f"not applied: batch_size={plan.batch_size} (the script has {own}, and only its own "
            "flag can change it: --map batch_size=--FLAG)"
        )
