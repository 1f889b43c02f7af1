"""Compare the machine, versions and model that a best.yaml records with those found here.

The operating system and the installed packages give the facts within milliseconds, without
importing torch. The kernel lists NVIDIA's GPUs only.
"""

from __future__ import annotations

import hashlib
import os
import platform
import warnings
from collections.abc import Sequence
from pathlib import Path

from autotune.calling.arguments import arguments_digest, digest_of_each
from autotune.calling.flag import Flag, flag_from
from autotune.configuration.best_config import BestConfig, edited
from autotune.configuration.script import own_flags
from autotune.configuration.training_config import TrainingConfig, environ_of
from autotune.process.common.child_ties import this_place
from autotune.process.common.interpreter import torch_version
from autotune.values.errors import MismatchError, MismatchWarning, UsageError
from autotune.values.machine import nvidia_driver, nvidia_gpus, probe_host
from autotune.values.text import size

DIGITS = 8
"""Hex digits by which a best.yaml knows each file that the model imports."""


def mismatches(
    best: BestConfig,
    model: Path | None = None,
    processes: int | None = None,
) -> list[str]:
    """Return what differs from the recorded machine and measurement, one line each.

    Settings that were edited in the file come first: they were not measured.

    Args:
        best: the result to be used here.
        model: the model.py to be trained. Default: the one that the file names, if it exists,
            relative to the current folder.
        processes: the processes that will train together. Default: the world size that a launcher
            put into the environment, else 1.

    Raises:
        UsageError: `model` cannot be read.
    """
    recorded, host = best.machine, probe_host()
    # torch reports 2.15.0+cu130 while the metadata of many of its packages say 2.15.0.
    torch = torch_version() or "none"
    recorded_torch = recorded.torch if "+" in torch else recorded.torch.partition("+")[0]
    python = ".".join(platform.python_version_tuple()[:2])
    facts: list[tuple[str, str | int, str | int]] = [
        ("CPU", recorded.cpu, host.cpu_name),
        ("usable cores", recorded.cores, host.usable_cores),
        ("Python", recorded.python.rpartition(".")[0], python),
        ("torch", recorded_torch, torch),
        ("processes", best.processes or 1, processes or world_size()),
    ]
    if recorded.driver is not None:
        facts.append(("driver", recorded.driver, nvidia_driver() or "none"))
    differing = [_difference(*fact) for fact in facts if fact[1] != fact[2]]
    differing += gpu_mismatches(recorded.device, recorded.driver, nvidia_gpus())
    peak, memory = best.constraints.memory.peak_bytes, host.usable_memory_bytes
    if recorded.device == "cpu" and memory < peak:
        differing.append(f"memory: the settings need {size(peak)}, {size(memory)} here")
    path = model or Path(best.provenance.model)
    if model is not None or path.is_file():
        differing += [f"{file}: changed since the search" for file in changed_files(best, path)]
        missing = [str(file) for file in _imports(best, path) if not file.is_file()]
        differing += [f"{', '.join(missing)}: imported in the search, not here"] if missing else []
    return [*edited(best), *differing]


def gpu_mismatches(device: str, driver: str | None, here: tuple[str, ...] | None) -> list[str]:
    """Return the difference between the recorded GPU and those found `here`, as lines.

    `device` is "cpu" without a GPU. The version of NVIDIA's driver is None without one. What is not
    known is None, too.
    """
    is_nvidia = driver is not None or device.startswith(("NVIDIA ", "Tesla ", "Quadro "))
    if device == "cpu" or not is_nvidia or here is None:
        return []
    if not here:
        return [f"GPU: {device} in the file, no NVIDIA GPU here"]
    # The name of a MIG slice begins with the whole GPU's: "NVIDIA H100 PCIe MIG 1g.10gb".
    if device.partition(" MIG ")[0] in here:
        return []
    return [_difference("GPU", device, ", ".join(dict.fromkeys(here)))]


def _difference(name: str, in_file: str | int, here: str | int) -> str:
    """Return one line about a fact that differs."""
    return f"{name}: {in_file} in the file, {here} here"


def missing_variables(config: TrainingConfig) -> list[str]:
    """Return the environment variables that this process should have begun with, as lines."""
    return [
        f"environment: {name}={value} in the file, {os.environ.get(name, 'not set')} here; it "
        "has to be set before Python starts, see `autotune export BEST.yaml --format env`"
        for name, value in environ_of(config).items()
        if os.environ.get(name) != value
    ]


def mismatch_text(name: str, found: Sequence[str]) -> str:
    """Return the message about a file that was made for something else."""
    return "\n".join(
        [
            f"{name} was made for something else:",
            *(f"  {line}" for line in found),
            "The speed-up may not hold here. `autotune compare` times these settings, `autotune "
            "search` finds new ones.",
        ]
    )


def report(name: str, found: Sequence[str], *, strict: bool) -> None:
    """Issue one warning, at the caller's caller, that names every difference, if there is one.

    Raises:
        MismatchError: there is a difference, and `strict` is set.
    """
    if not found:
        return
    if strict:
        raise MismatchError(mismatch_text(name, found))
    warnings.warn(mismatch_text(name, found), MismatchWarning, stacklevel=3)


def world_size() -> int:
    """Return the number of processes that a launcher started with this one; 1 without one."""
    place = this_place()
    return 1 if place is None else max(1, place.size)


def changed_files(best: BestConfig, model: Path) -> list[Path]:
    """Return the model.py or script, and the files that it imports, as far as they have changed.

    Raises:
        UsageError: the model.py or script cannot be read.
    """
    imports = _imports(best, model).items()
    changed = [path for path, digits in imports if not _is_as_measured(path, digits)]
    return changed if is_model(best, model) else [model, *changed]


def is_model(best: BestConfig, model: Path) -> bool:
    """Return whether a model.py or script has the contents of the measured one.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return sha256_of(model) == best.provenance.model_sha256
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UsageError(f"{model}: cannot be read ({error}). Name the model.py.") from error


def _imports(best: BestConfig, model: Path) -> dict[Path, str]:
    """Return the first digits of each file that was imported, by its path from this model."""
    folder = model.resolve().parent
    return {
        Path(os.path.normpath(folder / name)): digits
        for name, digits in (best.provenance.imports or {}).items()
    }


def _is_as_measured(path: Path, digits: str) -> bool:
    """Return True also for a file that is not there: the module may be installed elsewhere."""
    try:
        return sha256_of(path).startswith(digits)
    except OSError:
        return True


def other_arguments(best: BestConfig, arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names of arguments by which a script's training differs from the measured one.

    None if it is the same, or if the file records no arguments, as for a model.py. An empty name
    stands for positional arguments.
    """
    known, mapped = best.provenance.arguments_sha256, _mapped(best.as_measured())
    if known in (None, arguments_digest(arguments, mapped)):
        return None
    each, now = best.provenance.arguments or {}, digest_of_each(arguments, mapped)
    return tuple(name for name in {**each, **now} if each.get(name) != now.get(name))


def digests_of_arguments(best: BestConfig, arguments: Sequence[str]) -> dict[str, object]:
    """Return what a best.yaml holds of a script's own arguments, as fields of its provenance."""
    mapped = _mapped(best)
    return {
        "arguments_sha256": arguments_digest(arguments, mapped),
        "arguments": digest_of_each(arguments, mapped),
    }


def _mapped(best: BestConfig) -> list[Flag]:
    """Return the flags that carry settings."""
    return [*map(flag_from, best.maps), *own_flags(best.training_config)]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
