"""A script under settings: `python -P -c START PLAN [-m] SCRIPT [ARGUMENTS...]`.

START imports `main` and calls it: with `-m`, Ctrl-C would end in exit code 1. What the script
raises, prints, reads and leaves with is its own. PLAN is JSON, see `autotune.script.Plan`; it is
part of the arguments because an environment would be inherited.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from autotune.config import TrainingConfig
from autotune.script import Plan
from autotune.scripting.program import AfterImport, run_module, run_script

if TYPE_CHECKING:
    from autotune.scripting.interpose import Interposition


class Companion:
    """Waits for the script to import torch, and reports when the script has ended."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._interposition: Interposition | None = None
        self._process = os.getpid()

    def start(self) -> None:
        """Begin to wait."""
        atexit.register(self._tell)
        AfterImport("torch", self._interpose)

    def _interpose(self) -> None:
        """Never harms the script: what fails is said, and it runs on without us."""
        try:
            from autotune.scripting.interpose import Interposition

            config = TrainingConfig.of(self._plan.settings)
            asked, by_flag = frozenset(self._plan.asked), frozenset(self._plan.by_flag)
            interposition = Interposition(config, asked, by_flag)
            interposition.install()
            self._interposition = interposition
        except Exception:
            traceback.print_exc()

    def _tell(self) -> None:
        if os.getpid() != self._process:  # a fork of the script's that ends as it does
            return
        from autotune.scripting.report import report

        with suppress(OSError):  # stderr may be closed
            report(self._plan, self._interposition)


def main() -> None:
    """Run what the command line names."""
    plan, *words = sys.argv[1:]
    Companion(Plan.from_json(plan)).start()
    if words[0] == "-m":
        run_module(words[1], words[2:])
    else:
        run_script(words[0], words[1:])
