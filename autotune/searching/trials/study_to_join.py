"""The study that a worker joins: found in the storage once a search admits workers to it.

A worker shares with the search the model, the arguments of a script and the kind of machine. What
can be compared before anything runs is compared first.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from pydantic import TypeAdapter

from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import ScriptOptions
from autotune.process.common.interpreter import Interpreter, own_interpreter
from autotune.process.devices import Device
from autotune.process.stop import Stop
from autotune.searching.run.events import Warned
from autotune.storage.database import connected, disconnect
from autotune.storage.identity import Identity, differences
from autotune.storage.mutex import mutex_for
from autotune.storage.note_types import Workers
from autotune.storage.notes import StudyNotes
from autotune.values.errors import StudyMismatchError, UsageError
from autotune.values.outcome import Inspected

_LOOK_SECONDS = 1.0
# Facts that are absent where there is no such file; the first is known of an inspected workload.
_MODULES, _FILES = "modules", "argument_files_sha256"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker, as the user gave them."""

    study: str
    storage: str
    model_path: Path
    folder: Path
    """Folder of the study on this host."""
    device: Device
    allow_mixed: bool = False
    """True to join also a study that `search --force` began under the same name."""
    script: ScriptOptions | None = None
    """The script's arguments; None for a model.py. Its other options are the search's."""
    python: Interpreter = field(default_factory=own_interpreter)
    """Python that trains."""

    @property
    def worker(self) -> str:
        """Name of this process among the workers of all hosts."""
        return f"{socket.gethostname()}-{os.getpid()}"

    @property
    def own_folder(self) -> Path:
        """Folder of this process alone; others may have the same `folder`."""
        return self.folder / "workers" / self.worker


class StudyToJoin:
    """A study that admits workers, once `wait` has found it; `name` and `notes` are its own."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self.name = options.study
        self.notes = StudyNotes()

    @property
    def workers(self) -> Workers:
        """The options with which workers judge trials."""
        assert self.notes.workers is not None, "it was waited for"
        return self.notes.workers

    @property
    def identity(self) -> Identity:
        """The facts for which the study was made."""
        assert self.notes.identity is not None, "it was waited for"
        return self.notes.identity

    @property
    def script(self) -> ScriptOptions | None:
        """The call of the script: the worker's own arguments, and the search's options."""
        return _script_of(self._options, self.workers)

    def wait(self, stop: Stop, found: Inspected | None = None) -> Iterator[Warned]:
        """Poll the storage until a study of this model, and of the machine if found, is ready.

        Raises:
            StudyMismatchError: the study was made for something else.
            UsageError: the study is of the other kind of workload, or of several processes.
        """
        mutex = mutex_for(self._options.storage)
        with mutex.turn():
            storage = connected(self._options.storage)
        mutex.close()
        assert storage is not None
        said = False
        try:
            while not self._is_ready(storage, found):
                if not said:
                    yield Warned(f"no search of {self.name!r} has measured its baseline; waiting")
                    said = True
                stop.check()
                time.sleep(_LOOK_SECONDS)
        finally:
            disconnect(storage)

    def _is_ready(self, storage: BaseStorage, found: Inspected | None) -> bool:
        changed: list[str] = []
        for name in self._names(storage):
            try:
                study = optuna.load_study(study_name=name, storage=storage)
                notes = StudyNotes(study.user_attrs)
            except KeyError:
                continue
            if notes.workers is None or notes.identity is None:
                continue
            self._check_kind(name, notes.identity)
            changed = self._changed(notes.identity, notes.workers, found)
            if not changed:
                self.name, self.notes = name, notes
                return True
        if changed:
            raise StudyMismatchError(
                f"study {self._options.study!r} was made for something else:\n"
                + "\n".join(changed)
                + "\nWorkers need the same model and the same kind of machine. Where machines "
                "differ, start one `autotune search --force` on each kind; workers join the one of "
                "their kind with --allow-mixed."
            )
        return False

    def _check_kind(self, name: str, identity: Identity) -> None:
        path, is_script = self._options.model_path, self._options.script is not None
        if identity.is_of_script and not is_script:
            raise UsageError(f"study {name!r} is of a script; to have {path} run as one, add --")
        if is_script and not identity.is_of_script:
            raise UsageError(f"study {name!r} is of a model.py, and {path} is run as a script.")
        if (count := identity.facts.get("processes", 1)) > 1:
            raise UsageError(
                f"study {name!r} trains in {count} processes; workers run trials of one."
            )

    def _changed(self, identity: Identity, workers: Workers, found: Inspected | None) -> list[str]:
        """Return the facts that differ, of those that a worker can find."""
        script = _script_of(self._options, workers)
        own = {"model_sha256": sha256_of(self._options.model_path), **_facts_of(found)}
        own |= {} if script is None else script.facts
        local = (_FILES,) if found is None else (_MODULES, _FILES)
        known = {name: identity.facts.get(name) for name in (*own, *local)}
        return differences(known, own)

    def _names(self, storage: BaseStorage) -> list[str]:
        """Return the study's name, and with --allow-mixed those that `search --force` began."""
        if not self._options.allow_mixed:
            return [self._options.study]
        everything = optuna.get_all_study_names(storage)
        beside = [name for name in everything if name.startswith(f"{self._options.study}@")]
        return [self._options.study, *beside]


def _facts_of(found: Inspected | None) -> Mapping[str, Any]:
    """Return what the study's identity says of the machine and of the workload's own modules."""
    if found is None:
        return {}
    modules = found.workload.local_modules if found.workload else {}
    return {**({_MODULES: modules} if modules else {}), "machine": found.machine.fingerprint}


def _script_of(options: WorkerOptions, ready: Workers) -> ScriptOptions | None:
    if options.script is None:
        return None
    told = ready.options.get("script", {"arguments": ()})
    known = TypeAdapter(ScriptOptions).validate_python(told)
    return replace(known, arguments=options.script.arguments)
