"""Experiment trackers: results of a trial stay out of the places of real trainings.

wandb is told to do nothing. MLflow and TensorBoard write into the trial's folder, unless the script
gives MLflow a place in its code. Other trackers are only seen.
"""

from __future__ import annotations

import os
import sys
from functools import partial, wraps
from pathlib import Path
from typing import Any

from autotune.scripting.program import AfterImport

# Modules that send results somewhere, each with its name for people.
_TRACKERS = {
    "wandb": "wandb",
    "mlflow": "MLflow",
    "comet_ml": "Comet",
    "neptune": "Neptune",
    "clearml": "ClearML",
}
# What torch's SummaryWriter and tensorboardX write their event files with.
_WRITERS = ("tensorboard.summary.writer.event_file_writer", "tensorboardX.event_file_writer")


class Trackers:
    """The trackers of this process's script."""

    def __init__(self, folder: Path) -> None:
        """Prepare; `folder` is the trial's."""
        self._folder = folder
        self._writes_events = False

    def switch_off(self) -> None:
        """Keep results of this process from leaving the trial's folder.

        Side effects: sets WANDB_MODE, MLFLOW_TRACKING_URI and MLFLOW_ALLOW_FILE_STORE, and changes
        the event writers of TensorBoard once they are imported.
        """
        os.environ["WANDB_MODE"] = "disabled"
        os.environ["MLFLOW_TRACKING_URI"] = (self._folder.absolute() / "mlflow").as_uri()
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # else MLflow 3 wants a database
        for module in _WRITERS:
            AfterImport(module, partial(self._redirect, module))

    def used(self) -> list[str]:
        """Return the names of the trackers that the script uses so far."""
        found = [name for module, name in _TRACKERS.items() if module in sys.modules]
        return [*found, *(["TensorBoard"] if self._writes_events else [])]

    def _redirect(self, module: str) -> None:
        writer: Any = sys.modules[module].EventFileWriter
        construct = writer.__init__

        @wraps(construct)
        def construct_in_folder(this: Any, _: Any, *arguments: Any, **named: Any) -> None:
            self._writes_events = True
            construct(this, str(self._folder / "tensorboard"), *arguments, **named)

        writer.__init__ = construct_in_folder
