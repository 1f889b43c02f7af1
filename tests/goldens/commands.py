"""The commands with their arguments and options, and the errors with their exit codes."""

import inspect
from collections.abc import Iterator

import click

from autotune.cli import COMMANDS, cli
from autotune.values import errors
from autotune.values.errors import AutotuneError
from goldens.dumps import spelled

_OF_TYPE = ("name", "choices", "min", "max", "exists", "file_okay", "dir_okay", "allow_dash")
_OF_OPTION = ("required", "multiple", "is_flag", "nargs", "hidden", "envvar")
_PLAIN = (str, int, float, bool, dict, list, tuple)


def command_lines() -> Iterator[str]:
    """Yield a line for each parameter of each command, then one for each error."""
    yield from _parameters("autotune", cli)
    for name, command in ((name, cli.get_command(None, name)) for name in sorted(COMMANDS)):
        yield from _parameters(f"autotune {name}", command)
    for name, error in sorted(vars(errors).items()):
        if inspect.isclass(error) and issubclass(error, AutotuneError):
            yield f"exit {error.exit_code} {name}"


def _parameters(called: str, command: click.Command) -> Iterator[str]:
    """Yield the parameters of a command, arguments in their order and options sorted."""
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    others = [one for one in command.params if one not in arguments]
    yield called
    for one in (*arguments, *sorted(others, key=lambda one: one.opts)):
        is_argument = isinstance(one, click.Argument)
        names = [one.human_readable_name] if is_argument else [*one.opts, *one.secondary_opts]
        facts = {
            **{name: getattr(one.type, name, None) for name in _OF_TYPE},
            **{name: getattr(one, name, None) for name in _OF_OPTION},
            "default": one.default,
        }
        told = {
            name: fact
            for name, fact in facts.items()
            if isinstance(fact, _PLAIN) and fact is not False
        }
        yield f"{called} {' '.join(names)} {spelled(told)}"
