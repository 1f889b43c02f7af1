"""The command line: the list of commands, and the exit codes of their errors."""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
import traceback
from typing import NoReturn

import click

from autotune import __version__
from autotune.commands.compare import compare
from autotune.commands.dashboard import dashboard
from autotune.commands.export import export
from autotune.commands.init import init
from autotune.commands.profile import profile
from autotune.commands.report import report
from autotune.commands.run import run
from autotune.commands.search import search
from autotune.commands.show import check, doctor, knobs, schema, spaces
from autotune.commands.worker import worker
from autotune.console.interrupts import INTERRUPTED
from autotune.values.errors import AutotuneError, UsageError
from autotune.values.text import clean

# Errors of a path that the user gave, reported without a traceback.
_FOR_A_PERSON = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)
_COMMANDS = (
    search,
    run,
    report,
    export,
    init,
    profile,
    compare,
    dashboard,
    worker,
    knobs,
    spaces,
    doctor,
    schema,
    check,
)


def main() -> None:
    """Run a command; turn errors into a message and an exit code."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(file=said)
        click.echo(clean(said.getvalue()), nl=False, err=True)
        sys.exit(error.exit_code)
    except AutotuneError as error:
        click.echo(clean(f"autotune: {error}"), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(AutotuneError.exit_code)
    except OSError as error:
        if error.filename is None or error.errno not in _FOR_A_PERSON:
            _report_bug(error)
        click.echo(clean(f"autotune: {error.filename}: {error.strerror}."), err=True)
        sys.exit(UsageError.exit_code)
    except Exception as error:
        _report_bug(error)


class _InOrder(click.Group):
    """A group that lists its commands in the order in which people need them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in the order of `_COMMANDS`."""
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="autotune")
def cli() -> None:
    """Find the settings under which a PyTorch model trains fastest on this machine."""


for _command in _COMMANDS:
    cli.add_command(_command)


def _report_bug(error: Exception) -> NoReturn:
    handle, name = tempfile.mkstemp(prefix="autotune-crash-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(clean("".join(traceback.format_exception(error))))
    said = clean(f"{type(error).__name__}: {error}")
    click.echo(
        f"autotune: a fault of autotune itself: {said}\n"
        f"The details are in {name}; please report them.",
        err=True,
    )
    sys.exit(AutotuneError.exit_code)
