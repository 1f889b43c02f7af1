"""The command line: the list of commands, and the exit codes of their errors."""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
import traceback
from importlib import import_module
from typing import NoReturn, cast

import click

from autotune import __version__
from autotune.values.errors import INTERRUPTED, AutotuneError, UsageError
from autotune.values.text import clean, json_text

# Errors of a path that the user gave, reported without a traceback.
_FOR_A_PERSON = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR, errno.ENOTDIR),
)
COMMANDS = {
    "search": "Find the fastest settings and write best.yaml.",
    "run": "Run a script with the settings of a best.yaml.",
    "report": "Show what a study found, and why.",
    "export": "Write the settings for another tool.",
    "init": "Write a model.py to start from.",
    "profile": "Show the bottleneck of a training.",
    "compare": "Time two configurations alternately.",
    "dashboard": "Serve Optuna Dashboard on a study.",
    "worker": "Run trials of a study on another device or host.",
    "settings": "List the settings that can be tuned on this machine.",
    "spaces": "List the shipped search spaces.",
    "doctor": "Show what autotune finds on this machine.",
    "check": "Check best.yaml and search space files.",
}
"""Commands with their short help, in the order in which people need them."""
# Modules of commands whose name differs.
_MODULES = dict.fromkeys(("settings", "spaces", "doctor"), "show")


def main() -> None:
    """Run a command; turn errors into a message and an exit code."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(file=said)
        click.echo(clean(said.getvalue()), nl=False, err=True)
        _exit(error.exit_code, {"error": error.format_message()})
    except AutotuneError as error:
        click.echo(clean(f"autotune: {error}"), err=True)
        _exit(error.exit_code, error.result)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(AutotuneError.exit_code)
    except OSError as error:
        if error.filename is None or error.errno not in _FOR_A_PERSON:
            _report_bug(error)
        said_of = f"{error.filename}: {error.strerror}."
        click.echo(clean(f"autotune: {said_of}"), err=True)
        _exit(UsageError.exit_code, {"error": said_of})
    except Exception as error:
        _report_bug(error)


def _exit(code: int, result: dict[str, object]) -> NoReturn:
    """End with an exit code; with --json, print the error as one JSON object, too."""
    words = sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
    # Words of `run` may be those of the script, and `report` takes the name of a file.
    if "--json" in words and words[0] not in ("run", "report"):
        click.echo(clean(json_text({**result, "exit_code": code})))
    sys.exit(code)


class _Commands(click.Group):
    """The group of `COMMANDS`, in their order; one is imported when it is asked for."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            self.commands = cast("dict[str, click.Command]", dict.fromkeys(COMMANDS))
            return None  # click suggests one of these names
        module = import_module(f"autotune.commands.{_MODULES.get(cmd_name, cmd_name)}")
        found = getattr(module, cmd_name)
        assert isinstance(found, click.Command)
        return found

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in their order."""
        return list(COMMANDS)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the names with their short help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, prog_name="autotune")
def cli() -> None:
    """Find the settings under which a PyTorch model trains fastest on this machine."""


def _report_bug(error: Exception) -> NoReturn:
    handle, name = tempfile.mkstemp(prefix="autotune-crash-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(clean("".join(traceback.format_exception(error))))
    said = clean(f"{type(error).__name__}: {error}")
    click.echo(
        f"autotune: internal error: {said}\nPlease report it with the traceback in {name}.",
        err=True,
    )
    sys.exit(AutotuneError.exit_code)
