"""The user's files that a training consists of: they must not change while it is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autotune.calling.arguments import config_files
from autotune.calling.target import import_folder
from autotune.configuration.job import Job
from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import ScriptOptions
from autotune.context.search_context import SearchContext
from autotune.process.runner import Runner
from autotune.values.errors import FilesChangedError
from autotune.values.outcome import Observed, TrialOutcome

_SECOND_LOOK_SECONDS = 0.5


def own_files(context: SearchContext) -> dict[Path, str]:
    """Return the user's files that the workload imported, with their SHA-256 at that time."""
    workload = context.options.workload
    module = None if workload.script is None else workload.script.module
    folder = import_folder(workload.model_path, module)
    modules = context.facts.local_modules.items()
    return {Path(os.path.normpath(folder / name)): digest for name, digest in modules}


class WorkloadFiles:
    """The contents of a workload's file, of its config files, and of what it imports."""

    def __init__(self, model_path: Path, script: ScriptOptions | None) -> None:
        configs = () if script is None else config_files(script.arguments)
        self._known = {path: _digest(path) for path in (model_path, *configs)}

    def add_imports(self, context: SearchContext) -> None:
        """Add the files that the workload imported, as they were then."""
        self._known |= own_files(context)

    def leave_out(self, written: Iterable[str]) -> None:
        """Leave out files that the training writes itself."""
        places = set(written)
        for path in [path for path in self._known if str(path.resolve()) in places]:
            del self._known[path]

    def check(self) -> None:
        """Check that all are as they were.

        Raises:
            FilesChangedError: some have changed, which are named.
        """
        if self._changed():
            time.sleep(_SECOND_LOOK_SECONDS)  # a file that is being saved may have no contents
        if changed := self._changed():
            raise FilesChangedError(
                f"{', '.join(map(str, changed))} changed during the search. The trials so far are "
                "kept, but they measured the earlier version. Restore it and rerun the command, "
                "or start another study for the new version (--new-study)."
            )

    def _changed(self) -> list[Path]:
        return [path for path, digest in self._known.items() if _digest(path) != digest]


def _digest(path: Path) -> str | None:
    try:
        return sha256_of(path)
    except OSError:
        return None


@dataclass(frozen=True)
class UnchangedRunner:
    """A wrapper of a runner that gives no outcome of files that have changed."""

    runner: Runner
    files: WorkloadFiles

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Run the job and return its outcome.

        Raises:
            FilesChangedError: a file has changed since the search began.
        """
        outcome = self.runner.run(job, folder)
        if isinstance(outcome, Observed):
            self.files.leave_out(outcome.surroundings.overwritten)
        self.files.check()
        return outcome
