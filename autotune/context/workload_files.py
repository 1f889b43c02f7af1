"""The user's files that a training consists of: they must not change while it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.calling.arguments import config_files
from autotune.configuration.job import Job
from autotune.configuration.mismatch import sha256_of
from autotune.context.options import WorkloadOptions
from autotune.context.search_context import SearchContext
from autotune.processes.runner import Runner
from autotune.values.errors import StudyMismatchError
from autotune.values.outcome import TrialOutcome


def imported_files(context: SearchContext) -> dict[Path, str]:
    """Return the user's files that the workload imported, with their SHA-256 at that time."""
    folder = _folder(context.options.workload)
    return {folder / name: digest for name, digest in context.facts.local_modules.items()}


def _folder(workload: WorkloadOptions) -> Path:
    """Return the folder of the file, or the one from which -m imports it."""
    module = None if workload.script is None else workload.script.module
    return workload.model_path.resolve().parents[(module or "").count(".")]


class WorkloadFiles:
    """The contents of the workload's file, of what it imported, and of its config files."""

    def __init__(self, context: SearchContext) -> None:
        workload = context.options.workload
        self._main = workload.model_path
        arguments = () if workload.script is None else workload.script.arguments
        others = (*imported_files(context), *config_files(arguments))
        self._known = {path: _digest(path) for path in (self._main, *others)}
        self._has_run = False

    def check_after_a_process(self) -> None:
        """Check that all are as they were, after each process of the training.

        What has changed after the first one, but for the workload's own file, is no longer looked
        at: the training writes that itself.

        Raises:
            StudyMismatchError: some have changed, which are named.
        """
        changed = [path for path, digest in self._known.items() if _digest(path) != digest]
        if not self._has_run:
            self._has_run = True
            for path in set(changed) - {self._main}:
                del self._known[path]
            changed = [path for path in changed if path == self._main]
        if changed:
            raise StudyMismatchError(
                f"{', '.join(map(str, changed))} changed during the search. The trials so far are "
                "kept; they measured what it was before. Put it back, and the same command goes "
                "on; or search what it is now with --new-study."
            )


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
            StudyMismatchError: a file has changed since the search began.
        """
        outcome = self.runner.run(job, folder)
        self.files.check_after_a_process()
        return outcome
