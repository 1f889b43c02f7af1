"""Errors that a person can act on, each with its exit code.

Every message says where, what (with the value) and what to do. A failed *trial* is no exception
but a value, see `autotune.values.outcome`.
"""

from __future__ import annotations

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of a command that SIGINT or SIGTERM ended, as shells have them."""


class AutotuneError(Exception):
    """Base of the errors that are shown as a message, never as a traceback."""

    exit_code = 1

    @property
    def result(self) -> dict[str, object]:
        """Return the error as fields of a JSON object."""
        return {"error": str(self)}


class UsageError(AutotuneError):
    """A flag, a file or a search space cannot be used as given."""

    exit_code = 2


class WorkloadError(AutotuneError):
    """The user's model.py cannot run, even with the user's settings."""

    exit_code = 4


class StorageError(AutotuneError):
    """The study's storage cannot be opened, read or written."""

    exit_code = 5


class StudyMismatchError(AutotuneError):
    """The study on disk was made for another model, search space or machine."""

    exit_code = 6


class FilesChangedError(AutotuneError):
    """A file of the training changed while a search measured it."""

    exit_code = 6


class MismatchError(AutotuneError):
    """A best.yaml was made for another machine, PyTorch or model, which was not allowed."""

    exit_code = 6


class MismatchWarning(UserWarning):
    """A best.yaml was made for another machine, PyTorch or model, or not all of it took effect."""


class TooManyLostError(AutotuneError):
    """Too many trials in a row failed, or were lost to faults of the infrastructure."""

    exit_code = 7


class NotSearchedEnoughError(AutotuneError):
    """Too little was measured for any claim, usually for lack of time."""

    exit_code = 9

    def __init__(self, message: str, measured: int = 0, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.measured = measured
        """Number of configurations measured, without the user's settings."""
        self.seconds = seconds
        """Estimated time budget, in seconds, that would be enough; 0 if unknown."""

    @property
    def result(self) -> dict[str, object]:
        """Return the end of the search as fields of a JSON object."""
        data = {"answer": "not searched enough", "reason": str(self), "measured": self.measured}
        return {**data, "time_budget": self.seconds or None}
