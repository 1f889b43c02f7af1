"""One record of a script's surroundings, added to what its observed training is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.scripting.surroundings.kept_files import KeptFiles
from autotune.scripting.surroundings.packages import Imports
from autotune.scripting.surroundings.script_flags import ScriptFlags
from autotune.scripting.surroundings.terminal import give_terminal
from autotune.scripting.surroundings.trackers import Trackers
from autotune.scripting.surroundings.written_files import Refuse, WrittenFiles
from autotune.values.outcome import Observed, Surroundings, TrialOutcome

# Most names of a list that are kept.
_MOST = 200


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
