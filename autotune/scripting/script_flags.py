"""Record the flags that a script's parser knows, with the values that it gives them.

argparse and its subclasses (HfArgumentParser), jsonargparse, click, Hydra, and tyro's dataclasses
are known. Of values only whole numbers are kept, because others may be secrets.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from autotune.process.common.imports import AfterImport
from autotune.values.outcome import ScriptFlag

_NOTHING = object()


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
        AfterImport("click", self._watch_click)
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
        original = getattr(owner, name)

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            with suppress(Exception):  # must not harm the script
                then(args, result)
            return result

        setattr(owner, name, called)

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

    def _watch_click(self) -> None:
        import click

        original = click.Command.invoke

        @functools.wraps(original)
        def invoke(command: click.Command, ctx: click.Context) -> Any:  # as click names it
            with suppress(Exception):  # must not harm the script
                self._invoked(command, ctx)
            return original(command, ctx)

        click.Command.invoke = invoke  # type: ignore[method-assign, assignment]

    def _invoked(self, command: Any, context: Any) -> None:
        if not context.ignore_unknown_options:
            self.refused.add("--")
        for param in command.params:
            names = tuple(name for name in param.opts if name.startswith("-"))
            if names:
                names += tuple(param.secondary_opts)
                self._note(names, context.params.get(param.name or ""))

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
