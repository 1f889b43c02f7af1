"""What a best.yaml says of machine, versions and model, against what is here.

Everything is read from the operating system and from what is installed, so that asking takes
milliseconds: torch is never imported for it. Of accelerators, the kernel tells NVIDIA's; which one
torch takes is asked where torch is in use anyway, see `Best.apply_to_process`.
"""

from __future__ import annotations

import hashlib
import platform
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from autotune.best import BestConfig
from autotune.errors import MismatchError, MismatchWarning, UsageError
from autotune.machine import nvidia_driver, nvidia_gpus, probe_host
from autotune.text import size


def mismatches(best: BestConfig, model: Path | None = None) -> list[str]:
    """How what is here differs from where `best` was found, one line each.

    Args:
        best: the answer that is to be used here.
        model: the model.py that is to be trained; without it, the one that the file names is looked
            at if it is there, seen from the current folder.

    Raises:
        UsageError: `model` cannot be read.
    """
    recorded, host = best.machine, probe_host()
    facts: list[tuple[str, str | int, str | int]] = [
        ("CPU", recorded.cpu, host.cpu_name),
        ("usable cores", recorded.cores, host.usable_cores),
        ("Python", _minor(recorded.python), _minor(platform.python_version())),
        ("torch", *_torch_versions(recorded.torch)),
    ]
    if recorded.driver is not None:
        facts.append(("driver", recorded.driver, nvidia_driver() or "none"))
    differing = [difference(*fact) for fact in facts if fact[1] != fact[2]]
    differing += gpu_mismatches(recorded.device, recorded.driver, nvidia_gpus())
    peak, memory = best.constraints.memory.peak_bytes, host.usable_memory_bytes
    if recorded.device == "cpu" and memory < peak:
        differing.append(f"memory: the settings took {size(peak)}, {size(memory)} are here")
    return differing + _model_mismatches(best, model)


def gpu_mismatches(device: str, driver: str | None, here: tuple[str, ...] | None) -> list[str]:
    """How the GPUs that are here differ from the one of the file.

    Args:
        device: the one of the file, as torch calls it; "cpu" without one.
        driver: NVIDIA's, of the file; None where it had none, or it could not be read.
        here: names of the GPUs that are here; None where nobody knows.
    """
    is_nvidia = driver is not None or device.startswith(("NVIDIA ", "Tesla ", "Quadro "))
    if device == "cpu" or not is_nvidia or here is None:
        return []
    if not here:
        return [f"GPU: {device} in the file, no NVIDIA GPU here"]
    # A part of a GPU has the whole one's name before its own: "NVIDIA H100 PCIe MIG 1g.10gb".
    if device.partition(" MIG ")[0] in here:
        return []
    return [difference("GPU", device, ", ".join(dict.fromkeys(here)))]


def difference(name: str, in_file: str | int, here: str | int) -> str:
    """One line about a fact that is not what it was."""
    return f"{name}: {in_file} in the file, {here} here"


def mismatch_text(name: str, found: Sequence[str]) -> str:
    """What to tell a person about a file that was made for something else."""
    return "\n".join(
        [
            f"{name} was not made for what is here:",
            *(f"  {line}" for line in found),
            "Its speed-up may be gone: `autotune search` looks for settings anew, and "
            "`autotune compare MODEL.py BEST.yaml` times those of a model.py here.",
        ]
    )


def report(name: str, found: Sequence[str], *, strict: bool) -> None:
    """Warn the caller's caller once, of everything; silent where nothing was found.

    Raises:
        MismatchError: something was found, and `strict` says that it must not be.
    """
    if not found:
        return
    if strict:
        raise MismatchError(mismatch_text(name, found))
    warnings.warn(mismatch_text(name, found), MismatchWarning, stacklevel=3)


def _minor(python: str) -> str:
    """Of a version such as 3.12.1, the part that matters: 3.12."""
    return ".".join(python.split(".")[:2])


def _torch_versions(recorded: str) -> tuple[str, str]:
    """That of the file and that of here, as far as the installed package tells its own.

    torch says 2.15.0+cu130 where the metadata of many of its packages say 2.15.0.
    """
    try:
        here = version("torch")
    except PackageNotFoundError:
        here = "none"
    return (recorded if "+" in here else recorded.partition("+")[0]), here


def _model_mismatches(best: BestConfig, model: Path | None) -> list[str]:
    path = model or Path(best.provenance.model)
    if model is None and not path.is_file():
        return []
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UsageError(f"{path}: cannot be read ({error}). Name the model.py.") from error
    return [] if digest == best.provenance.model_sha256 else [f"{path}: changed since the search"]
