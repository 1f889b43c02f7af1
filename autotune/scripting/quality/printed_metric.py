"""Find the quality that a script prints in its logs."""

from __future__ import annotations

import re
import sys

from autotune.process.common.trial_folder import TrialFolder

_SHOWN = 80


class Printed:
    """The values of the quality that a script has printed so far."""

    def __init__(self, folder: TrialFolder, pattern: str) -> None:
        self._folder = folder
        self._pattern = re.compile(pattern, re.MULTILINE)
        self._known = (0, 0)
        self._from = (0, 0)

    def mark(self) -> None:
        """Let `news` ignore what has been printed so far."""
        self._from = self._known = self._sizes()

    def news(self) -> float | None:
        """Return the first quality printed since `mark`; None if there is none or nothing new.

        Raises:
            ValueError: the pattern matches something that is no number.
        """
        sizes = self._sizes()
        if sizes == self._known:
            return None
        self._known = sizes
        found = self._matches(self._from)
        return found[0] if found else None

    def last(self) -> float | None:
        """Return the last quality printed at all; None if there is none.

        Raises:
            ValueError: the pattern matches something that is no number.
        """
        self._sizes()
        found = self._matches((0, 0))
        return found[-1] if found else None

    def _matches(self, start: tuple[int, int]) -> list[float]:
        found: list[float] = []
        for path, begin in zip((self._folder.stdout, self._folder.stderr), start, strict=True):
            text = path.read_bytes()[begin:].decode(errors="replace")
            matches = self._pattern.finditer(text)
            found += [_number(m[1] if self._pattern.groups else m[0]) for m in matches]
        return found

    def _sizes(self) -> tuple[int, int]:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return self._folder.stdout.stat().st_size, self._folder.stderr.stat().st_size


def _number(text: str | None) -> float:
    """Convert a match's group to a number; raise ValueError if that fails or it is None."""
    try:
        return float(text or "")
    except ValueError:
        raise ValueError(
            f"--metric-regex captures {(text or '')[:_SHOWN]!r}, which is no number; let its first "
            "group hold the number alone, as in 'accuracy ([0-9.]+)'"
        ) from None
