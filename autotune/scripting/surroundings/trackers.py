"""Experiment trackers: results of a trial stay out of the places of real trainings.

wandb and Comet are told to do nothing. MLflow, Neptune, ClearML, Trackio and TensorBoard write into
the trial's folder. A mode or a place that a script names in its code counts for Comet, Neptune and
ClearML alone.

A script may write into the folder of its TensorBoard writer, too. So that is made for the first
such file where the script names it, and is the trial's where it names none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, reduce, wraps
from inspect import signature
from pathlib import Path
from typing import Any

from autotune.process.common.after_import import AfterImport

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
# Which make a folder of their own if their first argument, of one of these names, is left out.
_SUMMARIES = ("torch.utils.tensorboard.writer", "tensorboardX.writer")
_PLACES = ("log_dir", "logdir")


class Trackers:
    """The trackers of this process's script."""

    def __init__(self, folder: Path, promised: set[str]) -> None:
        """Prepare.

        Args:
            folder: the trial's.
            promised: gets the folders that are to be made once a file is written into them.
        """
        self._folder = folder
        self._events = str(folder.absolute() / "tensorboard")
        self._writes_events = False
        self._promised = promised

    def switch_off(self) -> None:
        """Keep results of this process from leaving the trial's folder.

        Side effects: sets the switches of `_switches` in the environment, removes those by which
        Trackio sends, and changes wandb, MLflow, Trackio and the event writers of TensorBoard once
        they are imported.
        """
        switches = _switches(self._folder.absolute())
        os.environ.update(switches)
        for name in _TRACKIO_SENDS_TO:
            os.environ.pop(name, None)
        AfterImport("wandb", _disable_wandb)
        AfterImport("mlflow", partial(_keep_mlflow, switches["MLFLOW_TRACKING_URI"]))
        AfterImport("trackio", _keep_trackio)
        for module in _WRITERS:
            AfterImport(module, partial(self._redirect, module))
        for module in _SUMMARIES:
            AfterImport(module, partial(self._place, module))

    def used(self) -> list[str]:
        """Return the names of the trackers that the script uses so far."""
        found = {name: None for module, name in TRACKERS.items() if module in sys.modules}
        return [*found, *(["TensorBoard"] if self._writes_events else [])]

    def _redirect(self, module: str) -> None:
        writer: Any = sys.modules[module].EventFileWriter
        construct = writer.__init__

        @wraps(construct)
        def construct_in_folder(this: Any, *arguments: Any, **named: Any) -> None:
            self._writes_events = True
            self._promise(arguments[0] if arguments else named.get("logdir"))
            if arguments:
                arguments = (self._events, *arguments[1:])
            else:
                named["logdir"] = self._events
            construct(this, *arguments, **named)

        writer.__init__ = construct_in_folder

    def _place(self, module: str) -> None:
        """Let a writer whose script names no folder say that its own is the trial's."""
        writer: Any = sys.modules[module].SummaryWriter
        construct = writer.__init__
        shape = signature(construct)
        names = [name for name in shape.parameters if name in _PLACES]

        @wraps(construct)
        def construct_placed(*arguments: Any, **named: Any) -> None:
            bound = shape.bind_partial(*arguments, **named)
            if names and not any(bound.arguments.get(name) for name in names):
                bound.arguments[names[0]] = self._events
            construct(*bound.args, **bound.kwargs)

        writer.__init__ = construct_placed

    def _promise(self, named: Any) -> None:
        """Promise a folder on this disk, which the writer that a script calls would make."""
        with suppress(OSError, TypeError, ValueError):
            if "://" not in str(named):
                self._promised.add(os.path.realpath(named))


def _disable_wandb() -> None:
    """Let `wandb.init` do nothing, whatever mode a script or a library on top of it names."""
    _hold("wandb", "init", mode="disabled")


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
    *owners, last = name.split(".")
    # Another version, or another module of that name.
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        owner: Any = reduce(getattr, owners, sys.modules[module])
        setattr(owner, last, _with(getattr(owner, last), **named))


def _with(original: Callable[..., Any], **named: str | None) -> Callable[..., Any]:
    """Return a function that passes these arguments instead of those that its caller gives."""
    shape = signature(original)

    @wraps(original)
    def call(*arguments: Any, **given: Any) -> Any:
        bound = shape.bind_partial(*arguments, **given)
        bound.arguments.update(named)
        return original(*bound.args, **bound.kwargs)

    return call


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
