"""One record of a script's surroundings, added to what its observed training is."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from autotune.scripting.surroundings.script_flags import ScriptFlags
from autotune.scripting.surroundings.written_files import WrittenFiles
from autotune.values.outcome import Observed, TrialOutcome
from autotune.values.workload_facts import Surroundings

# Modules that send results somewhere, each with its name for people.
_TRACKERS = {
    "wandb": "wandb",
    "mlflow": "MLflow",
    "comet_ml": "Comet",
    "neptune": "Neptune",
    "clearml": "ClearML",
}
_EVENT_FILE = "tfevents"
# Most names of a list that are kept.
_MOST = 40


class Record:
    """What surrounds the training of this process's script."""

    def __init__(self, own: Path, process_start: float) -> None:
        """Prepare; `own` is the trial's folder, `process_start` the monotonic clock then."""
        self._process_start = process_start
        self._flags, self._files = ScriptFlags(), WrittenFiles(own)

    def watch(self) -> None:
        """Record from now on."""
        self._flags.watch()
        self._files.watch()

    def added_to(self, outcome: TrialOutcome) -> TrialOutcome:
        """Return an observation with its surroundings; another outcome as it is."""
        if not isinstance(outcome, Observed):
            return outcome
        files = self._files
        return replace(
            outcome,
            surroundings=Surroundings(
                flags=self._flags.all(),
                refused=tuple(sorted(self._flags.refused)),
                folders=tuple(files.folders)[:_MOST],
                overwritten=tuple(files.overwritten)[:_MOST],
                deleted=tuple(files.deleted)[:_MOST],
                trackers=tuple(self._trackers()),
                seconds=time.monotonic() - self._process_start,
            ),
        )

    def _trackers(self) -> list[str]:
        found = [name for module, name in _TRACKERS.items() if module in sys.modules]
        files = (entry.name for folder in self._files.folders for entry in _entries(folder))
        return [*found, *(["TensorBoard"] if any(_EVENT_FILE in name for name in files) else [])]


def _entries(folder: str) -> list[Path]:
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []
