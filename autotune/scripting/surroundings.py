"""Record what surrounds a script's training: flags, files that it writes, packages, trackers.

Flags and files are noted by wrapped functions. Trackers are switched off. A warm host may import
the installed packages before the script, unless a file of the user's own sets the environment.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from autotune.process.common.imports import imported_files, is_installed
from autotune.scripting.files import KeptFiles, Refuse, WrittenFiles
from autotune.scripting.script_flags import ScriptFlags
from autotune.scripting.trackers import Trackers
from autotune.values.outcome import Observed, Surroundings, TrialOutcome

# Most names of a list that are kept.
_MOST = 200
_ROWS, _COLUMNS = 24, 80
# Names that a request to a host has room for, and how deep they lie: `torchvision.transforms.v2`.
_MOST_PACKAGES, _DEEPEST = 2000, 3
_READS = ("get", "copy", "items", "keys", "values")


class Record:
    """The surroundings of the training in this process's script."""

    def __init__(self, own: Path, kept: KeptFiles | None, refuse: Refuse) -> None:
        """Give the script a terminal, switch trackers off, keep files (see `WrittenFiles`)."""
        self._flags, self._files = ScriptFlags(), WrittenFiles(own, kept, refuse)
        self._kept = kept
        self._imports, self._shares_packages = Imports(), False
        self._trackers = Trackers(own, self._files.promised)
        self._trackers.switch_off()
        self._files.watch()
        give_terminal()

    def watch(self, shares_packages: bool) -> None:
        """Record from now on; packages only if a host is to import them."""
        self._shares_packages = shares_packages
        self._flags.watch()

    def added_to(self, outcome: TrialOutcome, folder: Path) -> TrialOutcome:
        """Return an observation with its surroundings; another outcome as it is.

        Modules that the script writes itself are left out of its own, whose paths begin in
        `folder`.
        """
        if not isinstance(outcome, Observed):
            return outcome
        files = self._files
        files.look_at_databases()
        modules = outcome.workload.local_modules.items()
        kept = {name: it for name, it in modules if not files.wrote((folder / name).resolve())}
        return replace(
            outcome,
            workload=replace(outcome.workload, local_modules=kept),
            surroundings=Surroundings(
                flags=self._flags.all(),
                refused=tuple(sorted(self._flags.refused)),
                folders=tuple(files.folders)[:_MOST],
                overwritten=tuple(files.overwritten)[:_MOST],
                deleted=tuple(files.deleted)[:_MOST],
                kept="" if self._kept is None else self._kept.folder,
                trackers=tuple(self._trackers.used()),
                packages=self._imports.packages() if self._shares_packages else (),
            ),
        )


def give_terminal() -> None:
    """Make standard input of this process a terminal of 24 rows that is always at its end.

    Scripts that ask for the width of a terminal, as with `stty size`, end where there is none. One
    that waits for an answer gets none, as from /dev/null. A system without terminals keeps that.
    """
    with suppress(ImportError, OSError):
        import termios

        _ours, theirs = os.openpty()  # ours stays open as long as this process lives
        flags = termios.tcgetattr(theirs)
        flags[3] &= ~(termios.ICANON | termios.ECHO)
        flags[6][termios.VMIN], flags[6][termios.VTIME] = 0, 0
        termios.tcsetattr(theirs, termios.TCSANOW, flags)
        termios.tcsetwinsize(theirs, (_ROWS, _COLUMNS))
        os.dup2(theirs, 0)
        os.close(theirs)


class Imports:
    """The imports of this process from now on."""

    def __init__(self) -> None:
        """Note what is imported already, and where a host would find packages."""
        self._before = frozenset(sys.modules)
        self._places = tuple(f"{place}/" for place in sys.path if place)

    def packages(self) -> tuple[str, ...]:
        """Return the public modules of installed packages, in the order of their import.

        Nothing is returned if a file of the user's own may have set environment variables, which
        packages read when they are imported.
        """
        new = [(name, place) for name, place in imported_files() if name not in self._before]
        if any(sets_environment(place) for _, place in new if not is_installed(place)):
            return ()
        return tuple(name for name, place in new if self._is_shared(name, place))[:_MOST_PACKAGES]

    def _is_shared(self, name: str, place: Path) -> bool:
        return is_installed(place) and str(place).startswith(self._places) and _is_public(name)


def _is_public(name: str) -> bool:
    parts = name.split(".")
    return len(parts) <= _DEEPEST and not any(part.startswith("_") for part in parts)


def sets_environment(path: Path) -> bool:
    """Return True if a file may set environment variables for the modules that it imports next."""
    with suppress(OSError, SyntaxError, ValueError):
        return tree_sets_environment(ast.parse(path.read_bytes()))
    return False


def tree_sets_environment(tree: ast.Module) -> bool:
    """Return True if a parsed file mentions the environment other than to read it."""
    reads = set(_reads_of_environment(tree))
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name))
    return any(
        (node.attr if isinstance(node, ast.Attribute) else node.id)
        in ("environ", "putenv", "unsetenv", "load_dotenv")
        and node not in reads
        for node in nodes
    )


def _reads_of_environment(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of `environ` in `environ.get(...)`, `environ[...]` and `in environ`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value, name) if name in _READS:
                yield value
            case ast.Subscript(value, ctx=ast.Load()):
                yield value
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[value]):
                yield value
