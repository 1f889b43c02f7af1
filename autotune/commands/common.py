"""What several commands share: their options, and what they do when they are told to end."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autotune.errors import MismatchError, UsageError
from autotune.flags import SettingsType, folder_name
from autotune.text import clean
from autotune.trial_folder import write_atomically

if TYPE_CHECKING:
    from autotune.config import TrainingConfig
    from autotune.tuning.scene import SearchOptions

Command = Callable[..., None]

TERMINATED = 143

MODEL = click.argument("model", type=click.Path(path_type=Path))
DEVICE = click.option("--device", default="auto", help="auto, cpu, cuda or cuda:N.")
SPACE = click.option(
    "--space", default="default", help="Name of a shipped search space, or a YAML file."
)
BASELINE = click.option(
    "--baseline", type=SettingsType(), default={}, help="Over BASELINE: batch_size=64,num_workers=2"
)
STRICT = click.option(
    "--strict",
    is_flag=True,
    help="Exit with 6 where a best.yaml was made for another machine, PyTorch or model.",
)
# Flags that only a search has.
_SHORT = dict.fromkeys(("study", "storage", "out", "time_budget", "memory_limit"))


def options_of(model: Path, **flags: Any) -> SearchOptions:
    """What a search is asked for; files go to studies/NAME/ unless a flag says otherwise.

    Raises:
        UsageError: model or output is no file that can be read or written; or see
            `warm_start_from`.
    """
    from autotune.tuning.scene import SearchOptions

    check_model(model)
    flags = _SHORT | flags
    study, storage, out = (flags.pop(name) for name in ("study", "storage", "out"))
    warm_start = flags.pop("warm_start", None)
    if out is not None and out.is_dir():
        raise UsageError(f"--out {out} is a folder. Name a file, such as {out / 'best.yaml'}.")
    study = study or (model.resolve().parent.name if model.stem == "model" else model.stem)
    _check_text("--study", study)
    folder = study_folder(study)
    return SearchOptions(
        model_path=model,
        study=study,
        storage=storage or _storage(folder),
        folder=folder,
        out=out or _out(folder),
        time_budget_seconds=flags.pop("time_budget"),
        memory_limit_bytes=flags.pop("memory_limit"),
        trial_timeout_seconds=flags.pop("trial_timeout", 600.0),
        warm_start=warm_start_from(warm_start, storage) if warm_start else (),
        **flags,
    )


def warm_start_from(source: str, storage: str | None = None) -> tuple[TrainingConfig, ...]:
    """What was best in an earlier search, the best first.

    `source` is what other commands take as STUDY. What is nothing of the kind here may be the name
    of a study in `storage`, where the search itself has a storage that is shared.

    Raises:
        UsageError, StorageError: there is nothing of the kind, or it cannot be read.
    """
    from autotune.best import read_best
    from autotune.report.source import find_source
    from autotune.tuning.sampling.warm_start import seeds_from

    try:
        found = find_source(source)
    except UsageError as error:
        if storage is not None and _holds(storage, source):
            return seeds_from(storage, source)
        raise UsageError(f"--warm-start: {error}") from error
    if found.url is None:
        assert found.answer is not None
        return (read_best(found.answer).training_config,)
    try:
        return seeds_from(found.url, _study_meant(found.url, source))
    except UsageError as error:
        raise UsageError(f"--warm-start: {error}") from error


def _holds(storage: str, study: str) -> bool:
    from autotune.tuning.storing.archive import study_names
    from autotune.tuning.storing.storage import check_storage, database_of

    check_storage(storage)
    database = database_of(storage)
    return (database is None or database.is_file()) and study in study_names(storage)


def _study_meant(storage: str, source: str) -> str | None:
    """Of a storage with several studies, the one of that name or that its folder is named after."""
    from autotune.tuning.storing.archive import study_names
    from autotune.tuning.storing.storage import database_of, masked

    names, database = study_names(storage), database_of(storage)
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
    """The same search under another name; files that a flag named stay there."""
    old, folder = options.folder, study_folder(study)
    storage = _storage(folder) if options.storage == _storage(old) else options.storage
    out = _out(folder) if options.out == _out(old) else options.out
    return replace(options, study=study, folder=folder, storage=storage, out=out)


def study_folder(study: str) -> Path:
    """Where what belongs to a study goes."""
    return Path("studies") / folder_name(study)


def _storage(folder: Path) -> str:
    return f"sqlite:///{folder / 'study.db'}"


def _out(folder: Path) -> Path:
    return folder / "best.yaml"


def check_model(model: Path) -> None:
    """Refuse what is no Python file.

    Raises:
        UsageError: it is none.
    """
    if not model.exists():
        raise UsageError(f"{model} does not exist. `autotune init {model}` writes a template.")
    _check_text("the model's path", str(model))
    if model.is_dir() or model.suffix != ".py":
        raise UsageError(f"{model} is not a Python file. Name the model.py with your functions.")
    _warn_of_strangers(model)


def _warn_of_strangers(model: Path) -> None:
    """Say on stderr where others may decide what is about to be run."""
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
            click.echo(clean(f"warning: {path} {said}. What it says is run as you."), err=True)


def tell_mismatches(best: Path, model: Path | None, strict: bool) -> None:
    """Say on stderr what `best` was made for that is not here.

    Raises:
        UsageError: a file cannot be read.
        MismatchError: there is something to say, and `strict` says that there must not be.
    """
    from autotune.best import read_best
    from autotune.mismatch import mismatch_text, mismatches

    found = mismatches(read_best(best), model)
    if found and strict:
        raise MismatchError(mismatch_text(str(best), found))
    if found:
        click.echo(clean(f"autotune: {mismatch_text(str(best), found)}"), err=True)


def write_new(path: Path, text: str, force: bool) -> None:
    """Write a file as a whole; over an existing one only by `force`, through a link never.

    Raises:
        UsageError: it is not to be written there, or cannot be.
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
    """Refuse bytes that are no text, which no database and no JSON can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} {text!r} is not UTF-8. Choose another name.") from None


def unwind_on_sigterm() -> None:
    """SIGTERM unwinds like an exception, so that the running child is killed on the way out."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(*_: object) -> NoReturn:
    sys.exit(TERMINATED)
