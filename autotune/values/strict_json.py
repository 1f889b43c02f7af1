"""Read JSON that another process wrote, whose schema is checked by pydantic."""

from __future__ import annotations

from pathlib import Path

MOST_BYTES = 1 << 19
"""Most bytes of a file. A timing with twenty thousand short epochs takes half of it."""


def read_some(path: Path) -> bytes:
    """Return a file's content; of a larger one the beginning, which is no JSON.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def fault_of(error: ValueError) -> str:
    """Return the first fault, with its place if a schema gives it, and without the content."""
    errors = getattr(error, "errors", None)  # of pydantic's ValidationError
    if errors is None:
        return str(error)
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{first['msg']} at {'.'.join(map(str, first['loc'])) or 'the top'}"
