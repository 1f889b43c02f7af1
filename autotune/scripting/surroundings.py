"""Record what surrounds a script's training: flags, files that it writes, trackers.

Flags are those of argparse and its subclasses (HfArgumentParser), jsonargparse, click, Hydra, and
tyro's dataclasses. Only numeric values are kept, because others may be secrets.

Results of a trial stay out of the places of real trainings: wandb and Comet are switched off.
MLflow, Neptune, ClearML, Trackio and TensorBoard write into the trial's folder. A mode or a place
that a script names in its code counts only for Comet, Neptune and ClearML. A script may write into
the folder of its TensorBoard writer, too. So that folder is made with the first such file if the
script names it; otherwise it is the trial's.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from inspect import signature
from pathlib import Path
from typing import Any

from autotune.calling.flag import CALL
from autotune.process.common import imports
from autotune.process.common.imports import AfterImport
from autotune.scripting.files import KeptFiles, Refuse, WrittenFiles
from autotune.values.outcome import Observed, ScriptFlag, Surroundings, TrialOutcome

# Most names of a list that are kept.
_MOST = 200
_ROWS, _COLUMNS = 24, 80
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


class Record:
    """The surroundings of the training in this process's script."""

    def __init__(self, own: Path, kept: KeptFiles | None, refuse: Refuse) -> None:
        """Give the script a terminal, switch trackers off, keep files (see `WrittenFiles`)."""
        self._flags, self._files = ScriptFlags(), WrittenFiles(own, kept, refuse)
        self._kept = kept
        self._trackers = Trackers(own, self._files.promised)
        _give_terminal()

    def watch(self) -> None:
        """Record flags from now on."""
        self._flags.watch()

    def added_to(
        self, outcome: TrialOutcome, folder: Path, passed: Mapping[str, object]
    ) -> TrialOutcome:
        """Return an observation with its surroundings; another outcome as it is.

        `passed` are arguments of calls, which count as flags. Modules that the script writes itself
        are left out of its own, whose paths begin in `folder`.
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
                flags=(*self._flags.all(), *(_flag((f"{CALL}{n}",), v) for n, v in passed.items())),
                refused=tuple(sorted(self._flags.refused)),
                folders=tuple(files.folders)[:_MOST],
                overwritten=tuple(files.overwritten)[:_MOST],
                deleted=tuple(files.deleted)[:_MOST],
                kept="" if self._kept is None else self._kept.folder,
                trackers=tuple(self._trackers.used()),
            ),
        )


def _give_terminal() -> None:
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


class ScriptFlags:
    """Flags of the parsers that a script runs."""

    def __init__(self) -> None:
        self._actions: list[argparse.Action] = []
        self._found: dict[tuple[str, ...], ScriptFlag] = {}
        self.refused: set[str] = set()
        """Kinds of words, "--" and "=", that a parser refuses if it does not know them."""

    def watch(self) -> None:
        """Note the flags of each parser that runs from now on."""
        parser = argparse.ArgumentParser
        holder = next(
            kind for kind in parser.mro() if "add_argument" in vars(kind)
        )  # of groups, too
        self._after(holder, "add_argument", lambda _, action: self._actions.append(action))
        self._after(parser, "parse_known_args", self._parsed_some)
        self._after(parser, "parse_args", self._parsed_all)
        AfterImport(
            "click",
            lambda: imports.replace(sys.modules["click"].Command, "invoke", self._invoke),
        )
        AfterImport(
            "jsonargparse",
            lambda: self._after(
                sys.modules["jsonargparse"].ArgumentParser, "parse_args", self._parsed_nested
            ),
        )
        AfterImport("hydra.core.hydra_config", self._watch_hydra)
        AfterImport("tyro", self._watch_tyro)

    def all(self) -> tuple[ScriptFlag, ...]:
        """Return the flags that were seen."""
        return tuple(self._found.values())

    def _after(self, owner: Any, name: str, then: Callable[..., object]) -> None:
        """Call `then` with the arguments and the result after each call of a function."""

        def called(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            with suppress(Exception):  # must not harm the script
                then(args, result)
            return result

        imports.replace(owner, name, called)

    def _note(self, names: tuple[str, ...], value: object) -> None:
        self._found[names] = _flag(names, value)

    def _parsed_some(self, arguments: Sequence[Any], result: tuple[Any, list[str]]) -> None:
        kinds = {kind.__name__ for kind in type(arguments[0]).__mro__}  # TRL's is one of them
        if "HfArgumentParser" in kinds:  # it refuses what is left over itself
            self.refused.add("--")
        self._note_actions(vars(result[0]))

    def _parsed_all(self, _: object, namespace: Any) -> None:
        self.refused.add("--")
        self._note_actions(vars(namespace))

    def _note_actions(self, values: Mapping[str, object]) -> None:
        for action in self._actions:
            names = tuple(name for name in action.option_strings if name not in ("-h", "--help"))
            if names and action.dest in values:
                self._note(names, values[action.dest])

    def _invoke(self, original: Callable[..., Any], command: Any, ctx: Any) -> Any:
        with suppress(Exception):  # must not harm the script
            if not ctx.ignore_unknown_options:
                self.refused.add("--")
            for param in command.params:
                names = tuple(name for name in param.opts if name.startswith("-"))
                if names:
                    names += tuple(param.secondary_opts)
                    self._note(names, ctx.params.get(param.name or ""))
        return original(command, ctx)

    def _parsed_nested(self, _: object, namespace: Any) -> None:
        """Note what jsonargparse parsed: dotted names, below the name of a subcommand if any."""
        self.refused.add("--")
        command = namespace.get("subcommand")
        flat = {
            name.removeprefix(f"{command}."): value
            for name, value in vars(namespace.as_flat()).items()
        }
        self._note_actions(flat)
        known = {action.dest for action in self._actions}
        for name, value in flat.items():
            if name not in known:
                self._note((f"--{name}",), value)

    def _watch_hydra(self) -> None:
        config = sys.modules["hydra.core.hydra_config"].HydraConfig

        def composed(arguments: Sequence[Any], _: object) -> None:
            to_container = sys.modules["omegaconf"].OmegaConf.to_container
            content = to_container(arguments[1], resolve=False)
            self.refused.add("=")
            for name, value in _leaves({k: v for k, v in content.items() if k != "hydra"}):
                self._note((name,), value)

        self._after(config, "set_config", composed)

    def _watch_tyro(self) -> None:
        def parsed(_: object, result: Any) -> None:
            for name, value in _leaves(dataclasses.asdict(result)):
                # It takes both spellings; a map is proposed with that of its help.
                self._note((f"--{name}", f"--{name.replace('_', '-')}"), value)
            self.refused.add("--")

        self._after(sys.modules["tyro"], "cli", parsed)


def _flag(names: tuple[str, ...], value: object) -> ScriptFlag:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return ScriptFlag(names, number, is_open=value is None)


def _leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


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

        imports.replace(owner, last, call)


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
