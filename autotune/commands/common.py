"""Options of commands, functions that read their values, and checks that commands share."""

from __future__ import annotations

import math
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import ByteSize, Field, TypeAdapter

from autotune.calling.target import is_program
from autotune.configuration import mismatch
from autotune.configuration.best_config import read_best
from autotune.configuration.constraints import Tolerance
from autotune.configuration.search_space import EffectiveBatch
from autotune.configuration.training_config import setting_faults
from autotune.context.options import SearchOptions, WorkloadOptions
from autotune.knobs.base import Value
from autotune.process.common.child_ties import this_place
from autotune.process.common.interpreter import SEARCHES, check_installed, check_torch
from autotune.process.common.trial_folder import write_atomically
from autotune.values.errors import MismatchError, UsageError
from autotune.values.strict_yaml import plain_value
from autotune.values.text import clean, folder_name

BEST = "best.yaml"
"""Name of the result in a study's folder."""
COMPILED = "inductor"
"""Folder in a study's folder with what torch.compile compiled for it."""
FEWEST_SECONDS = 20.0
"""Least time budget in seconds: three processes and six rounds take more."""
PATH = click.Path(path_type=Path)
"""Type of an argument or option that names a file or directory."""
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_SIZE = re.compile(r"\d*\.?\d+ ?[kmgtpe]?i?b?", re.IGNORECASE)


def duration(value: object) -> float:
    """Return seconds, from "90s", "10m" or "1.5h"; from Python also a number."""
    text = f"{value}s" if isinstance(value, int | float) else str(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or not float(match[1]):
        raise click.BadParameter(f"{value!r} is not a duration; write 90s, 10m or 1.5h.")
    return float(match[1]) * _SECONDS[match[2]]


def memory(value: object) -> float:
    """Return bytes as an int, from "16GB" (10^9) or "16GiB" (2^30), or a share, from "92%"."""
    share, is_relative = _amount(value)
    try:
        if not is_relative and not isinstance(value, float):
            return _bytes(value)
        if share is not None and 0 < share <= 1:
            return share
    except (ValueError, OverflowError):  # OverflowError: too many digits, for pydantic 2.11
        pass
    raise click.BadParameter(f"{value!r} is not an amount of memory; write 16GB, 512MiB or 92%.")


def _bytes(value: object) -> int:
    if not _SIZE.fullmatch(str(value)):  # pydantic would read "16,5GB" as 16 bytes
        raise ValueError
    return int(TypeAdapter(Annotated[ByteSize, Field(gt=0)]).validate_python(str(value)))


def tolerance(value: object) -> Tolerance:
    """Return a tolerance, from "1%" (a share) or "0.01" (absolute)."""
    if isinstance(value, Tolerance):
        return value
    amount, relative = _amount(value)
    if amount is None:
        raise click.BadParameter(f"{value!r} is not a tolerance; write 1% or 0.01.")
    return Tolerance(amount, relative)


def objective(value: object) -> str:
    """Return an objective: throughput, time-to-loss, or the latter with a loss, as in "=0.3"."""
    name, equals, loss = str(value).partition("=")
    is_known = str(value) in ("throughput", "time-to-loss")
    if name == "time-to-loss" and equals:
        with suppress(ValueError):
            is_known = math.isfinite(float(loss))
    if not is_known:
        raise click.BadParameter(
            f"{value!r} is not an objective; write throughput, time-to-loss or time-to-loss=0.3."
        )
    return str(value)


def share(value: object) -> float:
    """Return a share below 1, from "5%" or "0.05"."""
    amount, _ = _amount(value)
    if amount is None or amount >= 1:
        raise click.BadParameter(f"{value!r} is not a share; write 5% or 0.05.")
    return amount


def effective_batch(value: object) -> EffectiveBatch:
    """Return samples of an optimizer step: free, keep, or a number above zero."""
    if value in ("free", "keep"):
        return value
    if not re.fullmatch(r"[1-9]\d{0,8}", str(value)):
        raise click.BadParameter(f"{value!r} is not free, keep or a number of samples.")
    return int(str(value))


def settings(value: object) -> dict[str, Value]:
    """Return settings by name, from "batch_size=64,num_workers=2"."""
    found: dict[str, Value] = dict(value) if isinstance(value, dict) else {}
    for part in [] if isinstance(value, dict) else str(value).split(","):
        name, equals, text = (word.strip() for word in part.partition("="))
        if not equals:
            raise click.BadParameter(f"{part!r} is not a setting; write batch_size=64.")
        if name in found:
            raise click.BadParameter(f"{name} is given twice.")
        # The environment holds text, even where that looks like a number.
        found[name] = text if name.startswith("env.") and text != "null" else _setting(text)
    if faults := setting_faults(found):
        raise click.BadParameter(" ".join(faults.values()))
    return found


def _amount(value: object) -> tuple[float | None, bool]:
    text = f"{value:.15f}" if isinstance(value, float) else str(value)
    match = re.fullmatch(r"(\d*\.?\d+)\s*(%?)", text)
    if not match:
        return None, False
    relative = match[2] == "%"
    return float(match[1]) / (100 if relative else 1), relative


def _setting(text: str) -> Value:
    """Parse a value as YAML spells it."""
    with suppress(ValueError):
        return plain_value(text) if text else text  # type: ignore[return-value]
    return text


def option(
    flags: str, text: str, kind: Any = None, default: Any = None, **more: Any
) -> click.Option:
    """Return an option; `flags` has its spellings, and a parameter's name where they give none."""
    given: dict[str, Any] = {} if default is None else {"default": default}
    if isinstance(kind, click.IntRange):
        given["metavar"] = "N"
    return click.Option(flags.split(), help=text, type=kind, **given, **more)


def flag(flags: str, text: str, **more: Any) -> click.Option:
    """Return an option without a value; see `option`."""
    return click.Option(flags.split(), help=text, is_flag=True, **more)


MODEL = click.Argument(["model"], type=PATH)
DEVICE = option(
    "--device", "Use this device: auto, cpu, cuda or cuda:N.", default="auto", metavar="DEVICE"
)
SPACE = option(
    "--space",
    "Use this search space: a name from `autotune spaces`, or a YAML file. Settings that it does "
    "not name keep your values.",
    default="default",
    metavar="NAME|FILE",
)
BASELINE = option(
    "--baseline",
    "Override BASELINE of model.py, such as batch_size=64,num_workers=2.",
    settings,
    {},
    show_default=False,
)
PROCESSES = option(
    "--nproc-per-node",
    "Train in this many processes on this host, as torchrun does, each with batches of batch_size.",
    click.IntRange(min=1),
    1,
)
LAUNCHER = option(
    "--launcher",
    "Start the processes of each trial on this host with this command: 'torchrun ...', "
    "'srun ...', 'mpirun ...', 'accelerate launch ...'.",
    metavar="COMMAND",
)
FRESH_DATA = flag(
    "--fresh-data",
    "Build the dataset again in each process. Default: once, shared by forked processes.",
)
STRICT = flag(
    "--strict",
    "Exit with 6 if best.yaml was made for another machine, PyTorch or model. Default: warn.",
)
JSON = flag("--json as_json", "Print the result as JSON on stdout.")
QUIET = flag("-q --quiet", "Show no progress.")
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

    A study without a name is named after the model. An int as `memory_limit` is a number of bytes,
    a float a share of the device's memory.

    Raises:
        UsageError: the model or a flag cannot be used, or a package is missing.
    """
    check_model(model)
    check_processes(flags)
    if flags.get("sampler") in _NEED_SCIPY:
        check_installed("scipy", f"--sampler {flags['sampler']}")
    if out is not None and out.is_dir():
        raise UsageError(f"--out {out} is a directory. Name a file, such as {out / BEST}.")
    study = study or WorkloadOptions(model, flags.get("script")).called.module
    study = study or (model.resolve().parent.name if model.stem == "model" else model.stem)
    _check_text("--study", study)
    budget = flags.get("time_budget")
    if budget is not None and budget < FEWEST_SECONDS:
        raise UsageError(
            f"--time-budget {budget:g}s is too short for any search. "
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
        storage=storage or f"sqlite:///{folder / 'study.db'}",
        out=out or folder / BEST,
        **{_RENAMED.get(name, name): value for name, value in flags.items()},
    )


def study_folder(study: str) -> Path:
    """Return the directory of a study's files."""
    return Path("studies") / folder_name(study)


def check_model(model: Path) -> None:
    """Check that a model is a Python program, and torch can train it; warn if others can change it.

    Raises:
        UsageError: it does not exist, or is no Python file; torch is missing or too old.
    """
    if not model.exists():
        raise UsageError(
            f"{model} does not exist. Name your training script, or a model.py; `autotune init` "
            "writes a template."
        )
    _check_text("MODEL", str(model))
    if not is_program(model):
        raise UsageError(f"{model} is not a Python file. Name a training script or a model.py.")
    check_torch(SEARCHES)
    _warn_of_strangers(model)


def _warn_of_strangers(model: Path) -> None:
    """Warn on stderr if other users can change the code that is about to run."""
    with suppress(OSError):
        for path in (model, model.resolve().parent):
            found = path.stat()
            is_sticky = path.is_dir() and found.st_mode & stat.S_ISVTX
            if found.st_mode & stat.S_IWOTH and not is_sticky:
                said = f"can be written by every user of this machine; run `chmod o-w {path}`"
            elif path == model and found.st_uid not in (os.getuid(), 0):
                said = f"belongs to another user (ID {found.st_uid})"
            else:
                continue
            click.echo(clean(f"warning: {path} {said}. Its code runs as you."), err=True)


def tell_mismatches(
    best: Path, model: Path | None, strict: bool, processes: int | None = None
) -> None:
    """Print to stderr how this machine and model differ from those that `best` records.

    `processes` train together; None: as many as the environment says. If a launcher started several
    processes, only one prints.

    Raises:
        UsageError: a file cannot be read.
        MismatchError: there is a difference, and `strict` is set.
    """
    found = mismatch.mismatches(read_best(best), model, processes)
    if found and strict:
        raise MismatchError(mismatch.mismatch_text(str(best), found))
    if found:
        say(mismatch.mismatch_text(str(best), found))


def say(text: str) -> None:
    """Print a remark to stderr, only once if a launcher started several processes."""
    place = this_place()
    if place is None or place.rank == 0:
        click.echo(clean(f"autotune: {text}"), err=True)


def check_processes(flags: dict[str, Any], devices: str = "") -> None:
    """Check the flags that say how many processes a trial has, and that this command is one.

    `devices` is the --device that gives each trial one device of its own; empty without it.

    Raises:
        UsageError: they contradict each other, or a launcher started this command several times.
    """
    world = os.environ.get("WORLD_SIZE", "1")
    if world not in ("", "1"):
        raise UsageError(
            f"WORLD_SIZE={world} is set: a launcher started this command, but autotune starts the "
            f"processes of each trial itself. Run it without torchrun, with --nproc-per-node "
            f"{world}."
        )
    count, launch = flags.get("nproc_per_node") or 1, flags.get("launcher")
    if launch is not None and count > 1:
        raise UsageError(
            f"--nproc-per-node {count} with --launcher: the launcher decides how many processes it "
            "starts. Leave one of them out."
        )
    if devices and (launch is not None or count > 1):
        name = f"--nproc-per-node {count}" if launch is None else "--launcher"
        raise UsageError(
            f"--device {devices} gives each trial one device, but {name} spreads the processes of "
            "a trial over all of them. Leave one of them out; CUDA_VISIBLE_DEVICES chooses the "
            "GPUs that processes may use."
        )


def write_new(path: Path, text: str, force: bool) -> None:
    """Write a file atomically; replace an existing one only with `force`; follow no symbolic link.

    Raises:
        UsageError: the file exists, is a link, or cannot be written.
    """
    try:
        if path.is_symlink():
            raise UsageError(
                f"{path} is a symbolic link, which is not followed. Name the file itself."
            )
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a regular file. Choose another name.")
        if path.exists() and not force:
            raise UsageError(f"{path} exists. Choose another name, or overwrite it with --force.")
        write_atomically(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


def _check_text(what: str, text: str) -> None:
    """Refuse a name that is not UTF-8, which databases and JSON cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} {text!r} is not UTF-8. Choose another name.") from None
