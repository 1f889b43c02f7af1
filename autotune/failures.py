"""What an exception in the child means: exception in, outcome out.

Types first, then texts: libraries report a lack of memory in words of their own. A text decides
only where nothing else does, and never the text of the user's own output.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from autotune.apply import DatasetTooSmallError
from autotune.errors import UsageError, WorkloadError
from autotune.outcome import Failure, NonFinite, OutOfMemory, Rejected, UserError
from autotune.quality import NonFiniteLossError
from autotune.timing import EmptyEpochError

_DEVICE_MEMORY = (
    "CUDA out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "cudaErrorMemoryAllocation",
)
_SHARED_MEMORY = (
    "Unexpected bus error encountered in worker",
    "killed by signal: Bus error",
    "out of shared memory",
    "unable to allocate shared memory",
    "unable to open shared memory",
)
_HOST_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory",
    "Cannot allocate memory",
    "killed by signal: Killed",
)
_DESCRIPTORS = ("Too many open files",)
_NOT_PICKLABLE = (
    "can't pickle",
    "cannot pickle",
    "can't get local object",
    "cannot get local object",
)
_COMPILER_MODULES = ("torch._dynamo", "torch._inductor")


def classify(error: BaseException, model_path: Path | None, peak_bytes: int | None) -> Failure:
    """The outcome that stands for `error`, with what was in use at most, if known."""
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
        f"{type(error).__name__}: {_first_line(text)}", _where(error, model_path)
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
    if type(error).__module__.startswith(_COMPILER_MODULES):
        return Rejected(f"torch.compile failed: {_first_line(text)}")
    if any(word in text.lower() for word in _NOT_PICKLABLE):
        return Rejected(
            f"the dataset cannot be sent to DataLoader workers: {_first_line(text)}. "
            "Define its classes and functions at the top level of the file."
        )
    return None


def _where(error: BaseException, model_path: Path | None) -> str:
    """file:line of the innermost frame in the user's folder."""
    if model_path is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).resolve().parent == model_path.resolve().parent]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else str(model_path)


def _syntax(error: SyntaxError) -> str:
    """The message with the offending line and a caret under the place."""
    line = (error.text or "").rstrip()
    indent = len(line) - len(line.lstrip())
    caret = " " * max(0, (error.offset or 1) - 1 - indent) + "^"
    return f"{type(error).__name__}: {error.msg}\n    {line.lstrip()}\n    {caret}"


def _first_line(text: str) -> str:
    """The first line that says something; workers put a traceback header before the message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no message"
    if lines[0].startswith("Caught ") and len(lines) > 1:
        return lines[-1]
    return lines[0]
