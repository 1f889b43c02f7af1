"""The workload of a search: its traits, and its files, which must not change meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.calling.arguments import config_files
from autotune.calling.flag import Flag
from autotune.calling.target import import_folder
from autotune.configuration.best_config import BestConfig
from autotune.configuration.job import Job
from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import Judge, Script, ScriptOptions
from autotune.configuration.search_space import SpaceFile
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import WorkloadOptions
from autotune.knobs.own import unknown_options
from autotune.process.runner import Runner
from autotune.values.errors import FilesChangedError
from autotune.values.outcome import Diagnosed, Observed, Rejected, TrialOutcome, WorkloadFacts

_SECOND_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Traits:
    """All that a search knows of its workload, so that nothing else asks which kind it is.

    These are a model.py's, which trains in a loop of autotune's.
    """

    facts: WorkloadFacts
    judge: Judge
    """Quality metric by which its trainings are judged."""
    seen: Observed
    """The observed run of a script; a model.py's has no more than the device and the facts."""
    script: ScriptOptions
    """Its call, with all maps in force; a model.py has neither arguments nor maps."""
    proposed: tuple[Flag, ...] = ()
    """Those maps that no `--map` named: the script was seen to have such flags."""
    refusal: str = ""
    """Reason why a script's training loss cannot judge other batches; empty if it can."""

    counts_flops = True
    """True if a process can count the floating-point operations of its steps."""
    compares_first_steps = False
    """True if its numerics are checked by the first steps of its own loop."""
    settings_in = "the file or BASELINE"
    """Place of the user's own settings, for a message."""

    def scaling_rates(self) -> Traits:
        """Return the traits with the flag of a script for its learning rate."""
        return self

    def call(self, config: TrainingConfig | None, lr_factor: float = 1.0) -> Script | None:
        """Return the call of a script under a configuration; None: without any setting."""
        return None

    def stages(self, processes: int) -> Diagnosed | Rejected | None:
        """Return the seconds of each phase of its steps; None if another process has to time them.

        So many processes train together.
        """
        return None

    def faults(self, path: Path, config: TrainingConfig, own: TrainingConfig) -> Iterator[str]:
        """Yield why settings other than its `own` cannot be applied, each as a sentence."""
        settings = dict(config.own)
        yield from (fault for _, fault in unknown_options(settings, self.facts.signatures))
        of_scripts = (name for name in settings if name.startswith(("flags.", "calls.")))
        yield from (f"{name} is for training scripts." for name in of_scripts)

    def narrowed(
        self, file: SpaceFile, processes: int, holds_batch: bool
    ) -> tuple[SpaceFile, tuple[str, ...]]:
        """Return the space file without knobs that cannot reach the workload, and a note on each.

        So many `processes` train together. `holds_batch` is True if batch_size and
        accumulation_steps may only change together.
        """
        return file, ()

    @property
    def identity(self) -> dict[str, object]:
        """Facts on how it is called, which must not change while a study goes on."""
        return {}

    def digests(self, answer: BestConfig) -> dict[str, object]:
        """Return the digests of its arguments for the provenance of a result."""
        return {}


def traits_of_model(facts: WorkloadFacts, device: str = "cpu", processes: int = 1) -> Traits:
    """Return the traits of a model.py as it was inspected."""
    judge = Judge("evaluate", True) if facts.has_evaluate else Judge("held_out_loss")
    seen = Observed(device, (), "", 0.0, 0.0, 0.0, {}, facts, processes=processes)
    return Traits(facts, judge, seen, ScriptOptions(()))


def own_files(workload: WorkloadOptions, facts: WorkloadFacts) -> dict[Path, str]:
    """Return the user's files that the workload imported, with their SHA-256 at that time."""
    folder = import_folder(workload.model_path, workload.called.module)
    modules = facts.local_modules.items()
    return {Path(os.path.normpath(folder / name)): digest for name, digest in modules}


class WorkloadFiles:
    """The contents of a workload's file, of its config files, and of what it imports."""

    def __init__(self, workload: WorkloadOptions) -> None:
        self._workload = workload
        paths = (workload.model_path, *config_files(workload.called.arguments))
        self._known = {path: _digest(path) for path in paths}

    def add_imports(self, facts: WorkloadFacts) -> None:
        """Add the files that the workload imported, as they were then."""
        self._known |= own_files(self._workload, facts)

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
