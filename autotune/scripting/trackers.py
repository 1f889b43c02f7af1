"""Experiment trackers: results of a trial stay out of the places of real trainings.

wandb and Comet are switched off. MLflow, Neptune, ClearML, Trackio and TensorBoard write into
the trial's folder. A mode or a place that a script names in its code counts only for Comet, Neptune
and ClearML.

A script may write into the folder of its TensorBoard writer, too. So that folder is made with the
first such file if the script names it; otherwise it is the trial's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, reduce
from inspect import signature
from pathlib import Path
from typing import Any

from autotune.process.common.imports import AfterImport
from autotune.process.common.patches import replace

# Modules that send results somewhere, each with its name for people.
TRACKERS = {
    "wandb": "wandb",
    "mlflow": "MLflow",
    "comet_ml": "Comet",
    "neptune": "Neptune",
    "neptune_scale": "Neptune",
    "clearml": "ClearML",
    "trackio": "Trackio",
}
# Trackio's variables for Spaces, servers and buckets that get what is logged, and who is alerted.
_TRACKIO_SENDS_TO = (
    "TRACKIO_SPACE_ID",
    "TRACKIO_SERVER_URL",
    "TRACKIO_BUCKET_ID",
    "TRACKIO_DATASET_ID",
    "TRACKIO_REGISTRY_BUCKET_ID",
    "TRACKIO_WEBHOOK_URL",
)
# What torch's SummaryWriter and tensorboardX write their event files with.
_WRITERS = ("tensorboard.summary.writer.event_file_writer", "tensorboardX.event_file_writer")
# Those that make a folder of their own if this argument is left out.
_SUMMARIES = {"torch.utils.tensorboard.writer": "log_dir", "tensorboardX.writer": "logdir"}


class Trackers:
    """The trackers of this process's script."""

    def __init__(self, folder: Path, promised: set[str]) -> None:
        """Keep results of this process from leaving the trial's folder.

        `promised` gets folders that are to be made once a file is written into them.

        Side effects: sets the switches of `_switches` in the environment, removes those by which
        Trackio sends, and changes wandb, MLflow, Trackio and the event writers of TensorBoard once
        they are imported.
        """
        self._events = str(folder.absolute() / "tensorboard")
        self._writes_events, self._promised = False, promised
        switches = _switches(folder.absolute())
        os.environ.update(switches)
        for name in _TRACKIO_SENDS_TO:
            os.environ.pop(name, None)
        AfterImport("wandb", partial(_hold, "wandb", "init", mode="disabled"))
        AfterImport("mlflow", partial(_keep_mlflow, switches["MLFLOW_TRACKING_URI"]))
        AfterImport("trackio", _keep_trackio)
        for module in _WRITERS:
            AfterImport(
                module, partial(_change, module, "EventFileWriter.__init__", self._redirect)
            )
        for module, name in _SUMMARIES.items():
            place = partial(self._place, name)
            AfterImport(module, partial(_change, module, "SummaryWriter.__init__", place))

    def used(self) -> list[str]:
        """Return the names of the trackers that the script uses so far."""
        found = {name: None for module, name in TRACKERS.items() if module in sys.modules}
        return [*found, *(["TensorBoard"] if self._writes_events else [])]

    def _redirect(self, arguments: dict[str, Any]) -> None:
        """Let a writer write to the trial's folder; promise the folder that it would make here."""
        self._writes_events = True
        named = arguments.get("logdir")
        with suppress(OSError, TypeError, ValueError):
            if "://" not in str(named):
                self._promised.add(os.path.realpath(named))  # type: ignore[arg-type]
        arguments["logdir"] = self._events

    def _place(self, name: str, arguments: dict[str, Any]) -> None:
        """Let a writer whose script names no folder say that its own is the trial's."""
        arguments[name] = arguments.get(name) or self._events


def _keep_mlflow(place: str) -> None:
    """Let MLflow write to `place`, whatever server a script or a library on top of it names."""
    for module in ("mlflow", "mlflow.tracking"):
        _hold(module, "set_tracking_uri", uri=place)
        _hold(module, "set_registry_uri", uri=place)
    _hold("mlflow", "MlflowClient.__init__", tracking_uri=place, registry_uri=place)
    with suppress(AttributeError, TypeError):  # another module of that name
        sys.modules["mlflow"].set_tracking_uri(place)


def _keep_trackio() -> None:
    """Let Trackio write to `TRACKIO_DIR`, whatever Space or server a script or a library names."""
    nowhere = dict.fromkeys(("space_id", "server_url", "bucket_id", "dataset_id", "webhook_url"))
    for name in ("init", "alert"):
        _hold("trackio", name, **nowhere)
    # Both only send.
    for name in ("sync", "freeze"):
        setattr(sys.modules["trackio"], name, lambda *_, **__: None)


def _hold(module: str, name: str, **named: str | None) -> None:
    """Let a function of a module have these arguments whenever it is called."""
    _change(module, name, lambda arguments: arguments.update(named))


def _change(module: str, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Let a function of a module have its arguments, by their names, changed in each call."""
    *owners, last = name.split(".")
    # Another version, or another module of that name.
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        owner: Any = reduce(getattr, owners, sys.modules[module])
        shape = signature(getattr(owner, last))

        def call(original: Callable[..., Any], *arguments: Any, **given: Any) -> Any:
            bound = shape.bind_partial(*arguments, **given)
            change(bound.arguments)
            return original(*bound.args, **bound.kwargs)

        replace(owner, last, call)


def _switches(folder: Path) -> dict[str, str]:
    """Return the trackers' own variables that keep results off their servers and in `folder`.

    wandb 0.31, mlflow 3.17, comet_ml 3.58, neptune 1.14, clearml 2.1 and trackio 0.43 were tried.
    Neptune's two packages share only the mode "offline", which writes files.
    """
    return {
        "WANDB_MODE": "disabled",
        "COMET_AUTO_LOG_DISABLE": "1",
        "MLFLOW_TRACKING_URI": (folder / "mlflow").as_uri(),
        "MLFLOW_REGISTRY_URI": (folder / "mlflow").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",  # else MLflow 3 wants a database
        "NEPTUNE_MODE": "offline",
        "NEPTUNE_DATA_DIRECTORY": str(folder / "neptune"),  # of the package neptune
        "NEPTUNE_LOG_DIRECTORY": str(folder / "neptune"),  # of neptune_scale
        "CLEARML_OFFLINE_MODE": "1",
        "CLEARML_CACHE_DIR": str(folder / "clearml"),
        "TRACKIO_DIR": str(folder / "trackio"),
        "TRACKIO_TRACE_SESSIONS_DIR": str(folder / "trackio" / "traces"),
    }
