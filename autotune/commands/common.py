"""Options and checks that several commands share."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.calling.target import is_program
from autotune.configuration.flag_types import InterpreterType, SettingsType, folder_name
from autotune.process.common.interpreter import SEARCHES, Interpreter, check_installed
from autotune.process.common.trial_folder import write_atomically
from autotune.values.errors import MismatchError, UsageError
from autotune.values.text import clean

if TYPE_CHECKING:
    from autotune.configuration.training_config import TrainingConfig
    from autotune.context.options import SearchOptions

Command = Callable[..., None]

FEWEST_SECONDS = 20.0
"""Least time budget in seconds: three processes and six rounds take more."""


def python_option(oldest_torch: tuple[int, int]) -> Callable[[Command], Command]:
    """Return the option that names the Python that trains; it is checked as it is read."""
    return click.option(
        "--python",
        type=InterpreterType(oldest_torch),
        metavar="PATH",
        default="",
        envvar="AUTOTUNE_PYTHON",
        help="Train with this Python, such as .venv/bin/python, where autotune is installed apart "
        "from torch. Default: AUTOTUNE_PYTHON of the environment, else the Python of this command.",
    )


MODEL = click.argument("model", type=click.Path(path_type=Path))
DEVICE = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Use this device: auto, cpu, cuda or cuda:N.",
)
SPACE = click.option(
    "--space",
    default="default",
    show_default=True,
    help="Use this search space: a shipped one, see `autotune spaces`, or a YAML file.",
)
BASELINE = click.option(
    "--baseline",
    type=SettingsType(),
    default={},
    help="Override BASELINE of MODEL, such as batch_size=64,num_workers=2.",
)
PROCESSES = click.option(
    "--nproc-per-node",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Train in so many processes at once on this host, as torch's launcher does: one for each "
    "GPU, or several on the CPU; batch_size is of each.",
)
LAUNCH = click.option(
    "--launcher",
    "launch",
    metavar="COMMAND",
    help="Let this command start the processes of each trial, perhaps on several hosts: "
    "'torchrun ...', 'srun ...', 'mpirun ...', 'accelerate launch ...'. It is put before ours.",
)
PYTHON = python_option(SEARCHES)
FRESH_DATA = click.option(
    "--fresh-data",
    is_flag=True,
    help="Build the dataset anew in each process. Default: once, for all forked processes.",
)
STRICT = click.option(
    "--strict",
    is_flag=True,
    help="Exit with 6 if a best.yaml was made for another machine, PyTorch or model. "
    "Default: warn.",
)
# Samplers of Optuna's that import it.
_NEED_SCIPY = ("GPSampler", "QMCSampler")
# Flags that only `search` has.
_SHORT = dict.fromkeys(("study", "storage", "out", "time_budget", "memory_limit"))


def options_of(model: Path, **flags: Any) -> SearchOptions:
    """Return the options of a search; files go to studies/NAME/ unless a flag says otherwise.

    Raises:
        UsageError: the model or a flag cannot be used, a package is missing, or see
            `warm_start_from`.
    """
    from autotune.context.options import SearchOptions

    check_model(model, flags.get("python"))
    check_processes(flags)
    flags = _SHORT | flags
    if flags.get("sampler") in _NEED_SCIPY:
        check_installed("scipy", f"--sampler {flags['sampler']}")
    study, storage, out = (flags.pop(name) for name in ("study", "storage", "out"))
    warm_start = flags.pop("warm_start", None)
    if out is not None and out.is_dir():
        raise UsageError(f"--out {out} is a folder. Name a file, such as {out / 'best.yaml'}.")
    script = flags.get("script")
    named = script.module if script is not None else None
    study = study or named or (model.resolve().parent.name if model.stem == "model" else model.stem)
    _check_text("--study", study)
    budget = flags.pop("time_budget")
    if budget is not None and budget < FEWEST_SECONDS:
        raise UsageError(
            f"--time-budget {budget:g}s is less than any search takes. "
            f"Use {FEWEST_SECONDS:g}s or more."
        )
    folder = study_folder(study)
    return SearchOptions.of(
        model_path=model,
        study=study,
        storage=storage or _storage(folder),
        folder=folder,
        out=out or _out(folder),
        time_budget_seconds=budget,
        memory_limit_bytes=flags.pop("memory_limit"),
        trial_timeout_seconds=flags.pop("trial_timeout", 600.0),
        warm_start=warm_start_from(warm_start, storage) if warm_start else (),
        **flags,
    )


def warm_start_from(source: str, storage: str | None = None) -> tuple[TrainingConfig, ...]:
    """Return the best configurations of an earlier search, the best first.

    Args:
        source: a STUDY as for other commands, or the name of a study in `storage`.
        storage: URL of the search's own storage, if the user gave one.

    Raises:
        UsageError, StorageError: there is no such study, or it cannot be read.
    """
    from autotune.configuration.best_config import read_best
    from autotune.study.archive import find_study, warm_start_from

    try:
        found = find_study(source)
    except UsageError as error:
        if storage is not None and _holds(storage, source):
            return warm_start_from(storage, source)
        raise UsageError(f"--warm-start: {error}") from error
    if found.url is None:
        assert found.answer is not None
        return (read_best(found.answer).training_config,)
    try:
        return warm_start_from(found.url, _study_meant(found.url, source))
    except UsageError as error:
        raise UsageError(f"--warm-start: {error}") from error


def _holds(storage: str, study: str) -> bool:
    from autotune.study.archive import study_names
    from autotune.study.storage import check_storage, file_of

    check_storage(storage)
    database = file_of(storage)
    return (database is None or database.is_file()) and study in study_names(storage)


def _study_meant(storage: str, source: str) -> str | None:
    """Return the study of that name, or of its folder's name; None if the storage has one study.

    Raises:
        UsageError: the storage holds several studies, none of them of that name.
    """
    from autotune.study.archive import study_names
    from autotune.study.storage import file_of, masked

    names, database = study_names(storage), file_of(storage)
    if len(names) < 2:  # noqa: PLR2004
        return None
    folder = "" if database is None else database.resolve().parent.name
    for name in (source, *(name for name in names if folder_name(name) == folder)):
        if name in names:
            return name
    raise UsageError(
        f"{masked(storage)} holds several studies: {', '.join(map(repr, names))}. Choose one by "
        "its name, --warm-start NAME, in a search with that --storage."
    )


def renamed(options: SearchOptions, study: str) -> SearchOptions:
    """Return the options under another study name; paths that a flag set stay unchanged."""
    old, folder = options.study, study_folder(study)
    storage = _storage(folder) if old.storage == _storage(old.folder) else old.storage
    out = _out(folder) if old.out == _out(old.folder) else old.out
    changed = replace(old, name=study, storage=storage, folder=folder, out=out)
    return replace(options, study=changed)


def study_folder(study: str) -> Path:
    """Return the folder of a study's files."""
    return Path("studies") / folder_name(study)


def _storage(folder: Path) -> str:
    return f"sqlite:///{folder / 'study.db'}"


def _out(folder: Path) -> Path:
    return folder / "best.yaml"


def check_model(model: Path, python: Interpreter | None = None) -> None:
    """Check that a model is a program of `python` (None: this); warn if others can change it.

    Raises:
        UsageError: it does not exist, or is no Python file.
    """
    if not model.exists():
        raise UsageError(
            f"{model} does not exist. Name your training script, or a model.py: `autotune init` "
            "writes a template of one."
        )
    _check_text("the model's path", str(model))
    if not is_program(model, python):
        raise UsageError(f"{model} is not a Python file. Name the model.py with your functions.")
    _warn_of_strangers(model)


def _warn_of_strangers(model: Path) -> None:
    """Warn on stderr if other users can change the code that is about to run."""
    with suppress(OSError):
        for path in (model, model.resolve().parent):
            found = path.stat()
            is_sticky = path.is_dir() and found.st_mode & stat.S_ISVTX
            if found.st_mode & stat.S_IWOTH and not is_sticky:
                said = f"may be changed by every user of this machine; `chmod o-w {path}` helps"
            elif path == model and found.st_uid not in (os.getuid(), 0):
                said = f"belongs to another user ({found.st_uid})"
            else:
                continue
            click.echo(clean(f"warning: {path} {said}. Its code runs as you."), err=True)


def tell_mismatches(
    best: Path,
    model: Path | None,
    strict: bool,
    python: Interpreter,
    processes: int | None = None,
) -> None:
    """Print to stderr how this machine and model differ from those that `best` records.

    `python` trains, in `processes` that train together; None: as many as the environment says. Of
    several processes that a launcher started, one prints.

    Raises:
        UsageError: a file cannot be read.
        MismatchError: there is a difference, and `strict` is set.
    """
    from autotune.configuration.best_config import read_best
    from autotune.configuration.mismatch import mismatch_text, mismatches

    found = mismatches(read_best(best), model, processes, python)
    if found and strict:
        raise MismatchError(mismatch_text(str(best), found))
    if found:
        say(mismatch_text(str(best), found))


def say(text: str) -> None:
    """Print a remark to stderr; of several processes that a launcher started, the first does."""
    from autotune.process.common.launched import this_place

    place = this_place()
    if place is None or place.rank == 0:
        click.echo(clean(f"autotune: {text}"), err=True)


def check_processes(flags: dict[str, Any], has_devices: bool = False) -> None:
    """Check the flags that say how many processes a trial has, and that this command is one.

    Raises:
        UsageError: they contradict each other, or a launcher started this command several times.
    """
    world = os.environ.get("WORLD_SIZE", "1")
    if world not in ("", "1"):
        raise UsageError(
            f"WORLD_SIZE={world} is in the environment: autotune starts the processes of each "
            f"trial itself. Start it alone, without torchrun, with --nproc-per-node {world}."
        )
    count, launch = flags.get("nproc_per_node") or 1, flags.get("launch")
    if launch is not None and count > 1:
        raise UsageError(
            f"--nproc-per-node {count} with --launcher: the launcher says itself how many "
            "processes it starts. Give one of them."
        )
    if has_devices and (launch is not None or count > 1):
        name = "--nproc-per-node" if launch is None else "--launcher"
        raise UsageError(
            f"--devices runs a trial on each device, {name} one trial on all. Give one."
        )


def write_new(path: Path, text: str, force: bool) -> None:
    """Write a file atomically; replace an existing one only with `force`; follow no symbolic link.

    Raises:
        UsageError: the file exists, is a link, or cannot be written.
    """
    try:
        if path.is_symlink():
            raise UsageError(
                f"{path} is a symbolic link, which is not followed. Name a file itself."
            )
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a file that can be replaced. Name another.")
        if path.exists() and not force:
            raise UsageError(f"{path} exists. Choose another name, or overwrite with --force.")
        write_atomically(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


def _check_text(what: str, text: str) -> None:
    """Refuse a name that is not UTF-8, which databases and JSON cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} {text!r} is not UTF-8. Choose another name.") from None
