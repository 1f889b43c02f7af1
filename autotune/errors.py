"""Errors that a person can act on, and the exit code that each one becomes.

Every message says where, what (with the value) and what to do. No failure of a *trial* is an
exception: that is a value, see `autotune.outcome`.

* AutotuneError                     1  a fault of this tool
  + UsageError                      2  flags, files or search spaces that cannot be used
  + WorkloadError                   4  the user's model.py fails with the user's own settings
  + StorageError                    5  the study cannot be read or written
  + StudyMismatchError              6  the study was made for something else
  + MismatchError                   6  best.yaml was made for something else
  + TooManyLostError                7  trial after trial failed, or was lost
"""

from __future__ import annotations


class AutotuneError(Exception):
    """Base of every error that is shown to a person as a message, never as a traceback."""

    exit_code = 1


class UsageError(AutotuneError):
    """A flag, a file or a search space cannot be used as given."""

    exit_code = 2


class WorkloadError(AutotuneError):
    """The user's model.py cannot run even with the user's own settings."""

    exit_code = 4


class StorageError(AutotuneError):
    """The study's storage cannot be opened, read or written."""

    exit_code = 5


class StudyMismatchError(AutotuneError):
    """The study on disk was made for another model, search space or machine."""

    exit_code = 6


class MismatchError(AutotuneError):
    """A best.yaml was made for another machine, PyTorch or model, and that was not to be."""

    exit_code = 6


class MismatchWarning(UserWarning):
    """The same, where nobody asked for more than being told."""


class TooManyLostError(AutotuneError):
    """Trial after trial failed, or was lost to faults of the infrastructure."""

    exit_code = 7
