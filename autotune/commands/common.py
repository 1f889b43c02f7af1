"""Options and checks that several commands share."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from autotune.calling.target import is_program
from autotune.configuration import mismatch
from autotune.configuration.best_config import read_best
from autotune.configuration.flag_types import InterpreterType, SettingsType, folder_name
from autotune.context.options import SearchOptions
from autotune.process.common.interpreter import SEARCHES, Interpreter, check_installed
from autotune.process.common.launched import this_place
from autotune.process.common.trial_folder import write_atomically
from autotune.values.errors import MismatchError, UsageError
from autotune.values.text import clean

Command = Callable[..., None]

BEST = "best.yaml"
"""Name of the result in a study's folder."""
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
LAUNCHER = click.option(
    "--launcher",
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
# Flags with another name than their option.
_RENAMED = {
    "launcher": "launch",
    "target_samples": "run_samples",
    "target_epochs": "run_epochs",
    "time_budget": "time_budget_seconds",
    "trial_timeout": "trial_timeout_seconds",
}


def options_of(
    model: Path,
    *,
    study: str | None = None,
    storage: str | None = None,
    out: Path | None = None,
    memory_limit: float | None = None,
    **flags: Any,
) -> SearchOptions:
    """Return the options of a search; files go to studies/NAME/ unless a flag says otherwise.

    Args:
        model: the file to train.
        study: name of the study; None names it after the model.
        storage: URL of the study's storage.
        out: file of the result.
        memory_limit: bytes as an int, or a share of the device's memory as a float.
        flags: other flags of the commands.

    Raises:
        UsageError: the model or a flag cannot be used, or a package is missing.
    """
    check_model(model, flags.get("python"))
    check_processes(flags)
    if flags.get("sampler") in _NEED_SCIPY:
        check_installed("scipy", f"--sampler {flags['sampler']}")
    if out is not None and out.is_dir():
        raise UsageError(f"--out {out} is a folder. Name a file, such as {out / 'best.yaml'}.")
    script = flags.get("script")
    named = script.module if script is not None else None
    study = study or named or (model.resolve().parent.name if model.stem == "model" else model.stem)
    _check_text("--study", study)
    budget = flags.get("time_budget")
    if budget is not None and budget < FEWEST_SECONDS:
        raise UsageError(
            f"--time-budget {budget:g}s is less than any search takes. "
            f"Use {FEWEST_SECONDS:g}s or more."
        )
    if isinstance(memory_limit, float):
        flags["memory_headroom"] = round(1 - memory_limit, 9)
    else:
        flags["memory_limit_bytes"] = memory_limit
    folder = study_folder(study)
    return SearchOptions.of(
        model_path=model,
        study=study,
        folder=folder,
        storage=storage or storage_in(folder),
        out=out or folder / BEST,
        **{_RENAMED.get(name, name): value for name, value in flags.items()},
    )


def study_folder(study: str) -> Path:
    """Return the folder of a study's files."""
    return Path("studies") / folder_name(study)


def storage_in(folder: Path) -> str:
    """Return the URL of the storage in a study's folder."""
    return f"sqlite:///{folder / 'study.db'}"


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
    found = mismatch.mismatches(read_best(best), model, processes, python)
    if found and strict:
        raise MismatchError(mismatch.mismatch_text(str(best), found))
    if found:
        say(mismatch.mismatch_text(str(best), found))


def say(text: str) -> None:
    """Print a remark to stderr; of several processes that a launcher started, the first does."""
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
    count, launch = flags.get("nproc_per_node") or 1, flags.get("launcher")
    if launch is not None and count > 1:
        raise UsageError(
            f"--nproc-per-node {count} with --launcher: the launcher says itself how many "
            "processes it starts. Give one of them."
        )
    if has_devices and (launch is not None or count > 1):
        name = "--nproc-per-node" if launch is None else "--launcher"
        raise UsageError(
            f"--device with several devices runs a trial on each, {name} one trial on all. "
            "Give one."
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
