"""Turn an exception in the child into the outcome that stands for it.

The type decides first, then the message, because libraries report a lack of memory in different
words. What the user's code prints is never looked at.
"""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path

import torch

from autotune.knobs.torch_private import COMPILER
from autotune.training.batches import EmptyEpochError
from autotune.training.quality import NonFiniteLossError
from autotune.training.training_setup import DatasetTooSmallError
from autotune.values.errors import UsageError, WorkloadError
from autotune.values.outcome import Crashed, Failure, NonFinite, OutOfMemory, Rejected, UserError

_DEVICE_MEMORY = (
    "CUDA out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "cudaErrorMemoryAllocation",
)
# Libraries that get no memory for a handle or a workspace say so in other words.
_OFTEN_DEVICE_MEMORY = (
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "unable to find an engine",
    "Unable to find a valid cuDNN algorithm",
)
# Triton's error for a kernel that needs more registers or shared memory than the device has.
_TRITON = "out of resource: "
_SHARED_MEMORY = (
    "Unexpected bus error encountered in worker",
    "killed by signal: Bus error",
    "out of shared memory",
    "unable to allocate shared memory",
    "unable to open shared memory",
)
_HOST_MEMORY = ("DefaultCPUAllocator: can't allocate memory", "Cannot allocate memory")
_DEAD_WORKER = "DataLoader worker (pid"
# torch's error for an operation that has no deterministic kernel.
_NOT_DETERMINISTIC = "does not have a deterministic implementation"
# DDP's error for parameters without a gradient.
_UNUSED = "Expected to have finished reduction in the prior iteration"
_DESCRIPTORS = ("Too many open files",)
_NOT_PICKLABLE = (
    "can't pickle",
    "cannot pickle",
    "can't get local object",
    "cannot get local object",
)


def classify(error: BaseException, model_path: Path | None, peak_bytes: int | None) -> Failure:
    """Return the outcome that stands for `error`.

    `model_path` serves to find the line in the user's code, `peak_bytes` is the peak memory in use.
    """
    text = str(error)
    match error:
        case NonFiniteLossError():
            return NonFinite(text)
        case DatasetTooSmallError() | EmptyEpochError() | UsageError():
            return Rejected(text)
        case WorkloadError():
            return UserError(text, where="")
        case SyntaxError() if error.filename and error.lineno:
            return UserError(_syntax(error), where=f"{error.filename}:{error.lineno}")
        case torch.OutOfMemoryError():
            return OutOfMemory("device", _first_line(text), peak_bytes)
        case MemoryError():
            return OutOfMemory("host", "Python could not allocate memory", peak_bytes)
        case SystemExit():
            return UserError(f"the code called sys.exit({error.code!r})", _where(error, model_path))
    return _by_text(error, text, peak_bytes) or UserError(
        _message(error, text), _where(error, model_path)
    )


def _by_text(error: BaseException, text: str, peak_bytes: int | None) -> Failure | None:
    for memory, words in (
        ("device", _DEVICE_MEMORY),
        ("shared", _SHARED_MEMORY),
        ("host", _HOST_MEMORY),
        ("file descriptors", _DESCRIPTORS),
    ):
        if any(word in text for word in words):
            return OutOfMemory(memory, _first_line(text), peak_bytes)  # type: ignore[arg-type]
    if any(word.lower() in text.lower() for word in _OFTEN_DEVICE_MEMORY):
        detail = f"{_first_line(text)} (usually a lack of memory)"
        return OutOfMemory("device", detail, peak_bytes)
    if _UNUSED in text:
        return Rejected(
            f"DistributedDataParallel: {_first_line(text)} Leave parameters that no step uses out "
            "with requires_grad_(False)"
        )
    if _NOT_DETERMINISTIC in text:
        return Rejected(_first_line(text).partition(". ")[0])
    if text.startswith(_DEAD_WORKER):
        return Crashed(_first_line(text))
    if type(error).__module__.startswith(COMPILER) or _TRITON in text:
        return Rejected(f"torch.compile failed: {_first_line(text)}")
    if any(word in text.lower() for word in _NOT_PICKLABLE):
        return Rejected(
            f"the dataset cannot be sent to DataLoader workers: {_first_line(text)}. "
            "Define its classes and functions at the top level of the file."
        )
    return None


def _where(error: BaseException, model_path: Path | None) -> str:
    """Return file:line of the innermost frame in the user's folder."""
    if model_path is None:
        return ""
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    # A DataLoader worker sends its traceback as text.
    frames += re.findall(r'File "([^"]+)", line (\d+)', str(error))
    folder = model_path.resolve().parent
    own = [(name, line) for name, line in frames if Path(name).resolve().parent == folder]
    return f"{own[-1][0]}:{own[-1][1]}" if own else str(model_path)


def _message(error: BaseException, text: str) -> str:
    """Return the error's type and first line; for a DataLoader worker's error its last line."""
    if text.startswith("Caught ") and "DataLoader worker" in text:
        return text.strip().splitlines()[-1]
    where = f" (by {sys.executable})" if isinstance(error, ImportError) else ""
    return f"{type(error).__name__}: {_first_line(text)}{where}"


def _syntax(error: SyntaxError) -> str:
    """Return the message with the offending line and a caret under the place."""
    line = (error.text or "").rstrip()
    indent = len(line) - len(line.lstrip())
    caret = " " * max(0, (error.offset or 1) - 1 - indent) + "^"
    return f"{type(error).__name__}: {error.msg}\n    {line.lstrip()}\n    {caret}"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no message"
