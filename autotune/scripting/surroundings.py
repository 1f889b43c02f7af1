"""Record what surrounds a script's training: its flags, the files that it writes, its trackers.

Flags and files are noted by wrapped functions. Trackers are switched off.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from autotune.scripting.files import KeptFiles, Refuse, WrittenFiles
from autotune.scripting.packages import Imports
from autotune.scripting.script_flags import ScriptFlags
from autotune.scripting.trackers import Trackers
from autotune.values.outcome import Observed, Surroundings, TrialOutcome

# Most names of a list that are kept.
_MOST = 200
_ROWS, _COLUMNS = 24, 80


class Record:
    """The surroundings of the training in this process's script."""

    def __init__(self, own: Path, kept: KeptFiles | None, refuse: Refuse) -> None:
        """Give the script a terminal, switch trackers off, keep files (see `WrittenFiles`)."""
        self._flags, self._files = ScriptFlags(), WrittenFiles(own, kept, refuse)
        self._kept = kept
        self._imports, self._shares_packages = Imports(), False
        self._trackers = Trackers(own, self._files.promised)
        self._trackers.switch_off()
        self._files.watch()
        give_terminal()

    def watch(self, shares_packages: bool) -> None:
        """Record from now on; packages only if a host is to import them."""
        self._shares_packages = shares_packages
        self._flags.watch()

    def added_to(self, outcome: TrialOutcome, folder: Path) -> TrialOutcome:
        """Return an observation with its surroundings; another outcome as it is.

        Modules that the script writes itself are left out of its own, whose paths begin in
        `folder`.
        """
        if not isinstance(outcome, Observed):
            return outcome
        files = self._files
        files.look_at_databases()
        modules = outcome.workload.local_modules.items()
        kept = {name: it for name, it in modules if not files.wrote((folder / name).resolve())}
        return replace(
            outcome,
            workload=replace(outcome.workload, local_modules=kept),
            surroundings=Surroundings(
                flags=self._flags.all(),
                refused=tuple(sorted(self._flags.refused)),
                folders=tuple(files.folders)[:_MOST],
                overwritten=tuple(files.overwritten)[:_MOST],
                deleted=tuple(files.deleted)[:_MOST],
                kept="" if self._kept is None else self._kept.folder,
                trackers=tuple(self._trackers.used()),
                packages=self._imports.packages() if self._shares_packages else (),
            ),
        )


def give_terminal() -> None:
    """Make standard input of this process a terminal of 24 rows that is always at its end.

    Scripts that ask for the width of a terminal, as with `stty size`, end where there is none. One
    that waits for an answer gets none, as from /dev/null. A system without terminals keeps that.
    """
    with suppress(ImportError, OSError):
        import termios

        _ours, theirs = os.openpty()  # ours stays open as long as this process lives
        flags = termios.tcgetattr(theirs)
        flags[3] &= ~(termios.ICANON | termios.ECHO)
        flags[6][termios.VMIN], flags[6][termios.VTIME] = 0, 0
        termios.tcsetattr(theirs, termios.TCSANOW, flags)
        termios.tcsetwinsize(theirs, (_ROWS, _COLUMNS))
        os.dup2(theirs, 0)
        os.close(theirs)
