"""The workload of a search: its traits, its own knobs, and its files, which must not change."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from autotune.calling.arguments import config_files
from autotune.calling.flag import Flag, preset_file
from autotune.calling.target import import_folder
from autotune.configuration.best_config import BestConfig
from autotune.configuration.job import Job
from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import Judge, Script, ScriptOptions, is_switch
from autotune.configuration.search_space import SpaceFile, read_own_knobs
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import WorkloadOptions
from autotune.knobs.base import Value, spelled
from autotune.knobs.own import (
    BUILDERS,
    Kind,
    OwnKnob,
    name_to_read,
    own_knob,
    own_knobs,
    unknown_options,
)
from autotune.process.runner import Runner
from autotune.values.errors import FilesChangedError, UsageError
from autotune.values.outcome import Diagnosed, Observed, Rejected, TrialOutcome, WorkloadFacts
from autotune.values.strict_yaml import read

_SECOND_LOOK_SECONDS = 0.5
# Settings of presets that need a package.
_NEED = {"calls.transformers.training_args.TrainingArguments.use_liger_kernel": "liger_kernel"}
_FOR_SCRIPTS = (
    "is for training scripts. Make it an argument of build_model, and name it under options."
)


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


def check_own_knobs(
    names: Iterable[str],
    file: SpaceFile,
    workload: WorkloadOptions,
    facts: WorkloadFacts | None = None,
) -> None:
    """Check that each of the user's own knobs fits the workload, as far as it is known.

    Raises:
        UsageError: some do not; all are named.
    """
    faults = dict(unknown_options(names, facts.signatures if facts else {}))
    misfits = {name: _misfit(name, workload) for name in names}
    faults |= {name: f"{name} {fault}" for name, fault in misfits.items() if fault}
    if faults:
        lines = [f"{_position(name, file, workload)}: {fault}" for name, fault in faults.items()]
        raise UsageError("\n".join(lines))


def with_preset(file: SpaceFile, script: ScriptOptions) -> SpaceFile:
    """Return the space with the settings of the script's preset that it does not name itself."""
    if script.preset_name is None:
        return file
    document, faults = read(preset_file(script.preset_name)), list[str]()
    shipped = read_own_knobs(document, faults)
    assert not faults, faults
    lacking = (name for name, package in _NEED.items() if find_spec(package) is None)
    left = {*file.own.offers, *lacking}
    offers = {name: values for name, values in shipped.offers.items() if name not in left}
    own = replace(
        file.own,
        offers={**offers, **file.own.offers},
        effects={**{name: shipped.effects[name] for name in offers}, **file.own.effects},
    )
    return replace(file, own=own, offers={**file.offers, **offers})


def words_of(kind: Kind, names: Iterable[str]) -> dict[str, str]:
    """Return the names of one kind of the user's own knobs, by the word that each sets."""
    return {knob.word: knob.name for knob in own_knobs(names) if knob.kind == kind}


def _misfit(name: str, workload: WorkloadOptions) -> str | None:
    """Return why a knob of the user's own does not fit the kind of workload; None if it does."""
    knob, script = own_knob(name), workload.script
    if knob is None:
        return None
    if script is None:
        return _FOR_SCRIPTS if knob.kind in ("flags", "calls") else None
    if knob.kind in BUILDERS:
        return (
            f"is an argument of {BUILDERS[knob.kind]}, and {workload.model_path} is a training "
            "script. Name its flag under flags."
        )
    if mapped := [f.knob for f in script.flags if (f.call or f.name) == knob.word]:
        return f"is what --map {mapped[0]}={knob.word} sets. Keep one of the two."
    return None


def as_found(
    file: SpaceFile, workload: WorkloadOptions, facts: WorkloadFacts
) -> tuple[SpaceFile, dict[str, Value]]:
    """Return the user's own knobs as they are without a setting, and the space with null as that.

    They are the variables of this process, the flags among the script's arguments, and defaults of
    the build functions' arguments.

    Raises:
        UsageError: the build functions do not take some of the arguments; all are named.
    """
    today = {**file.own.baseline, **facts.baseline, **workload.baseline}
    names = dict.fromkeys((*file.own.offers, *today))
    check_own_knobs(names, file, workload, facts)
    found = {knob.name: _found(knob, file, workload, facts) for knob in own_knobs(file.own.offers)}
    offers = {
        name: tuple(dict.fromkeys(found.get(name) if v is None else v for v in values))
        for name, values in file.own.offers.items()
    }
    today = {**found, **file.own.baseline}
    return replace(file, offers={**file.offers, **offers}), today


def _position(name: str, file: SpaceFile, workload: WorkloadOptions) -> str:
    if name in file.own.offers:
        return file.position(name)
    return "--baseline" if name in workload.baseline else f"{workload.model_path}: BASELINE"


def _found(
    knob: OwnKnob, file: SpaceFile, workload: WorkloadOptions, facts: WorkloadFacts
) -> Value:
    if knob.kind == "env":
        return os.environ.get(name_to_read(knob.word)) or None
    if knob.kind == "calls":
        return None
    if knob.kind == "flags":
        offered, arguments = file.own.offers[knob.name], workload.called.arguments
        if is_switch(knob.word, offered):
            return knob.word in arguments
        text = Flag("", knob.word).given(arguments)
        return next((value for value in offered if spelled(value) == text), text)
    signature = facts.signatures.get(BUILDERS[knob.kind])
    return None if signature is None else signature.defaults.get(knob.word)
