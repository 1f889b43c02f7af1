"""Record what surrounds a script's training: flags, files that it writes, trackers.

Flags are those of argparse and its subclasses (HfArgumentParser), jsonargparse, click, Hydra, and
tyro's dataclasses. Of their values only whole numbers are kept, because others may be secrets.
Trackers are switched off.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.process.common import patches
from autotune.process.common.imports import AfterImport
from autotune.scripting.files import KeptFiles, Refuse, WrittenFiles
from autotune.scripting.trackers import Trackers
from autotune.values.outcome import Observed, ScriptFlag, Surroundings, TrialOutcome

# Most names of a list that are kept.
_MOST = 200
_ROWS, _COLUMNS = 24, 80


class Record:
    """The surroundings of the training in this process's script."""

    def __init__(self, own: Path, kept: KeptFiles | None, refuse: Refuse) -> None:
        """Give the script a terminal, switch trackers off, keep files (see `WrittenFiles`)."""
        self._flags, self._files = ScriptFlags(), WrittenFiles(own, kept, refuse)
        self._kept = kept
        self._trackers = Trackers(own, self._files.promised)
        _give_terminal()

    def watch(self) -> None:
        """Record flags from now on."""
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
            ),
        )


def _give_terminal() -> None:
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


class ScriptFlags:
    """Flags of the parsers that a script runs."""

    def __init__(self) -> None:
        self._actions: list[argparse.Action] = []
        self._found: dict[tuple[str, ...], ScriptFlag] = {}
        self.refused: set[str] = set()
        """Kinds of words, "--" and "=", of which a parser refuses those that it does not know."""

    def watch(self) -> None:
        """Note the flags of each parser that runs from now on."""
        parser = argparse.ArgumentParser
        holder = next(
            kind for kind in parser.mro() if "add_argument" in vars(kind)
        )  # of groups, too
        self._after(holder, "add_argument", lambda _, action: self._actions.append(action))
        self._after(parser, "parse_known_args", self._parsed_some)
        self._after(parser, "parse_args", self._parsed_all)
        AfterImport(
            "click",
            lambda: patches.replace(sys.modules["click"].Command, "invoke", self._invoke),
        )
        AfterImport(
            "jsonargparse",
            lambda: self._after(
                sys.modules["jsonargparse"].ArgumentParser, "parse_args", self._parsed_nested
            ),
        )
        AfterImport("hydra.core.hydra_config", self._watch_hydra)
        AfterImport("tyro", self._watch_tyro)

    def all(self) -> tuple[ScriptFlag, ...]:
        """Return the flags that were seen."""
        return tuple(self._found.values())

    def _after(self, owner: Any, name: str, then: Callable[..., object]) -> None:
        """Call `then` with the arguments and the result after each call of a function."""

        def called(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            with suppress(Exception):  # must not harm the script
                then(args, result)
            return result

        patches.replace(owner, name, called)

    def _note(self, names: tuple[str, ...], value: object) -> None:
        number = value if type(value) is int else None
        self._found[names] = ScriptFlag(names, number, is_open=value is None)

    def _parsed_some(self, arguments: Sequence[Any], result: tuple[Any, list[str]]) -> None:
        kinds = {kind.__name__ for kind in type(arguments[0]).__mro__}  # TRL's is one of them
        if "HfArgumentParser" in kinds:  # it refuses what is left over itself
            self.refused.add("--")
        self._note_actions(vars(result[0]))

    def _parsed_all(self, _: object, namespace: Any) -> None:
        self.refused.add("--")
        self._note_actions(vars(namespace))

    def _note_actions(self, values: Mapping[str, object]) -> None:
        for action in self._actions:
            names = tuple(name for name in action.option_strings if name not in ("-h", "--help"))
            if names and action.dest in values:
                self._note(names, values[action.dest])

    def _invoke(self, original: Callable[..., Any], command: Any, ctx: Any) -> Any:
        with suppress(Exception):  # must not harm the script
            if not ctx.ignore_unknown_options:
                self.refused.add("--")
            for param in command.params:
                names = tuple(name for name in param.opts if name.startswith("-"))
                if names:
                    names += tuple(param.secondary_opts)
                    self._note(names, ctx.params.get(param.name or ""))
        return original(command, ctx)

    def _parsed_nested(self, _: object, namespace: Any) -> None:
        """Note what jsonargparse parsed: dotted names, below the name of a subcommand if any."""
        self.refused.add("--")
        command = namespace.get("subcommand")
        flat = {
            name.removeprefix(f"{command}."): value
            for name, value in vars(namespace.as_flat()).items()
        }
        self._note_actions(flat)
        known = {action.dest for action in self._actions}
        for name, value in flat.items():
            if name not in known:
                self._note((f"--{name}",), value)

    def _watch_hydra(self) -> None:
        config = sys.modules["hydra.core.hydra_config"].HydraConfig

        def composed(arguments: Sequence[Any], _: object) -> None:
            to_container = sys.modules["omegaconf"].OmegaConf.to_container
            content = to_container(arguments[1], resolve=False)
            self.refused.add("=")
            for name, value in _leaves({k: v for k, v in content.items() if k != "hydra"}):
                self._note((name,), value)

        self._after(config, "set_config", composed)

    def _watch_tyro(self) -> None:
        def parsed(_: object, result: Any) -> None:
            for name, value in _leaves(dataclasses.asdict(result)):
                # It takes both spellings; a map is proposed with that of its help.
                self._note((f"--{name}", f"--{name.replace('_', '-')}"), value)
            self.refused.add("--")

        self._after(sys.modules["tyro"], "cli", parsed)


def _leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
