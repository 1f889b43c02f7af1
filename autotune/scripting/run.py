"""Run a script under settings: `python -P -c START PLAN [-m] SCRIPT [ARGUMENTS...]`.

START imports `main` and calls it: if python got `-m` instead, Ctrl-C would end in exit code 1. The
script's errors, output, input and exit code are its own. PLAN is JSON, see
`autotune.configuration.script.Plan`. It is an argument, because children of the script would
inherit an environment variable.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from autotune.calling.config_file import with_copies
from autotune.configuration.script import Plan
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import knob_named
from autotune.knobs.base import spelled
from autotune.process.common.imports import AfterImport
from autotune.process.common.launched import this_place
from autotune.scripting.program import run_module, run_script
from autotune.values.text import by_reason, clean

if TYPE_CHECKING:
    from autotune.scripting.interpose import Interposition


_DEFAULTS = "only PyTorch's defaults"


class ScriptRun:
    """Hooks of a run: apply settings when the script imports torch, report when it ends."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._interposition: Interposition | None = None
        self._process = os.getpid()
        self._copies = ""

    def start(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """Set up the hooks; return the script's arguments with changed copies of config files.

        The copies are removed when the script has ended.
        """
        if self._plan.edits:
            self._copies = mkdtemp(prefix="autotune-")
        atexit.register(self._tell)
        AfterImport("torch", self._interpose)
        return with_copies(arguments, self._plan.edits, Path(self._copies))

    def _interpose(self) -> None:
        """Apply the settings; an error is printed, and the script continues without them."""
        try:
            from autotune.scripting.interpose import Interposition

            config = TrainingConfig.of(self._plan.settings)
            asked, by_flag = frozenset(self._plan.asked), frozenset(self._plan.by_flag)
            interposition = Interposition(config, asked, by_flag, self._plan.own)
            interposition.install()
            # num_threads may be lower than asked for, by cpu_affinity.
            self._plan = replace(self._plan, settings=interposition.config.every())
            self._interposition = interposition
        except Exception:
            traceback.print_exc()

    def _tell(self) -> None:
        if os.getpid() != self._process:  # a fork that the script made
            return
        if self._copies:
            shutil.rmtree(self._copies, ignore_errors=True)
        place, stderr = this_place(), sys.__stderr__  # the script may have replaced sys.stderr
        if stderr is None or (place is not None and place.rank):  # all ranks would say the same
            return
        with suppress(OSError, ValueError):
            for line in lines(self._plan, self._interposition):
                print(clean(f"autotune: {line}"), file=stderr)


def lines(plan: Plan, interposition: Interposition | None) -> Iterator[str]:
    """Yield what was applied, what the script overrode, and what could not be applied, and why.

    `interposition` is None if the script never imported torch.
    """
    if interposition is None:
        yield f"{_without_torch(plan)}: the script did not import torch"
        return
    overridden, failed = interposition.overridden(), interposition.failed
    if interposition.steps == 0 and interposition.observed.batch_size is None:
        failed = dict.fromkeys(failed, "the script ended before its first step of training")
    fine = [n for n in (*plan.told, *plan.by_flag) if n not in overridden and n not in failed]
    by = {name: f" (by {flag})" for name, flag in plan.by_flag.items()}
    applied = [f"{plan.setting(name)}{by.get(name, '')}" for name in fine]
    yield f"applied: {', '.join(applied) or _DEFAULTS}"
    by_flag = {name: f"{plan.setting(name)} by {flag}" for name, flag in plan.by_flag.items()}
    for name, (wanted, found) in overridden.items():
        if name in by_flag:
            yield f"not applied: {by_flag[name]} (the script runs with {spelled(found)})"
        else:
            yield f"overridden by the script: {name}={spelled(found)} instead of {spelled(wanted)}"
    asked = {name: plan.setting(name) for name in plan.told} | by_flag
    without = {setting: failed[name] for name, setting in asked.items() if name in failed}
    for reason, settings in by_reason(without).items():
        yield f"not applied: {', '.join(settings)} ({reason})"
    own, wanted = interposition.observed.batch_size, plan.settings["batch_size"]
    is_told = plan.setting("batch_size") in plan.withheld
    if "batch_size" not in plan.by_flag and not is_told and own not in (None, wanted):
        yield f"batch_size={own} is the script's own; the result was measured with {wanted}"


def _without_torch(plan: Plan) -> str:
    """Return what reaches a script without torch: variables and its own flags."""
    settings = plan.settings
    found = [plan.setting(n) for n in plan.told if knob_named(n).environ(settings[n])]
    found += [f"{plan.setting(name)} (by {flag})" for name, flag in plan.by_flag.items()]
    return f"applied: {', '.join(found)}, and nothing else" if found else "nothing was applied"


def main() -> None:
    """Run the script or module that the command line names."""
    plan, *words = sys.argv[1:]
    is_module = words[0] == "-m"
    name, *arguments = words[1:] if is_module else words
    given = ScriptRun(Plan.from_json(plan)).start(arguments)
    if is_module:
        run_module(name, given)
    else:
        run_script(name, given)
