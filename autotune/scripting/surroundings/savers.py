"""Functions of libraries that write a file in C, C++ or Rust, of which Python tells nothing.

A file can be kept only before it is written: times of change and open descriptors, looked at after
the run, would come too late. So the functions are wrapped. Unseen stay types in C, which cannot be
wrapped (`pyarrow.OSFile`, pyarrow's file systems, `cv2.VideoWriter`), folders of files
(`pyarrow.dataset`), and all libraries that are not in the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, reduce, wraps
from typing import Any

from autotune.process.common.after_import import AfterImport


@dataclass(frozen=True, slots=True)
class _Saver:
    """A function that writes the file that an argument names."""

    module: str
    name: str
    """The function in its module; a method counts `self` among its arguments."""
    position: int
    argument: str
    has_mode: bool = False
    """True if the next argument, `mode`, is "r" by default and "w" to empty the file."""


_SAVERS = (
    _Saver("torch", "save", 1, "f"),
    _Saver("torch", "jit.RecursiveScriptModule.save", 1, "f"),  # torch.jit.save calls it
    _Saver("torch.export", "save", 1, "f"),
    # The function that save_file calls, which others have imported by name before.
    _Saver("safetensors.torch", "serialize_file", 1, "filename"),
    _Saver("safetensors.numpy", "serialize_file", 1, "filename"),
    _Saver("h5py", "File.__init__", 1, "name", has_mode=True),
    _Saver("cv2", "imwrite", 0, "filename"),
    _Saver("pyarrow", "output_stream", 0, "source"),
    _Saver("pyarrow.csv", "write_csv", 1, "output_file"),
    _Saver("pyarrow.feather", "write_feather", 1, "dest"),
    _Saver("pyarrow.ipc", "RecordBatchFileWriter.__init__", 1, "sink"),
    _Saver("pyarrow.ipc", "RecordBatchStreamWriter.__init__", 1, "sink"),
    _Saver("pyarrow.parquet", "ParquetWriter.__init__", 1, "where"),
)


def watch_savers(writes: Callable[..., None]) -> None:
    """Call `writes` with the file, and `is_emptied`, before one of the functions writes it."""
    for saver in _SAVERS:
        AfterImport(saver.module, partial(_wrap, saver, writes))


def _wrap(saver: _Saver, writes: Callable[..., None]) -> None:
    *owners, name = saver.name.split(".")
    with suppress(AttributeError, TypeError):  # another version, or another module of that name
        owner: Any = reduce(getattr, owners, sys.modules[saver.module])
        setattr(owner, name, _telling(saver, writes, getattr(owner, name)))


def _telling(
    saver: _Saver, writes: Callable[..., None], original: Callable[..., Any]
) -> Callable[..., Any]:
    names = (*range(saver.position), saver.argument, "mode")

    @wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        with suppress(Exception):  # it may be no path
            given = dict(zip(names, args, strict=False)) | kwargs
            mode = given.get("mode", "r") if saver.has_mode else "w"
            if mode != "r":
                writes(given[saver.argument], is_emptied=mode == "w")
        return original(*args, **kwargs)

    return save
