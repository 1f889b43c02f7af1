"""Command `compare`: time two configurations in alternation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.commands import common
from autotune.commands import script_options as scripts
from autotune.console.interrupts import unwind_on_sigterm
from autotune.values.errors import UsageError

if TYPE_CHECKING:
    from autotune.configuration.best_config import BestConfig

_NOT_FASTER = 8


@click.command(
    cls=scripts.ScriptCommand,
    options_metavar="[OPTIONS]",
    short_help="Time two configurations in alternation.",
)
@common.MODEL
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path), required=False)
@click.option(
    "--rounds",
    type=click.IntRange(min=6),
    default=9,
    show_default=True,
    help="Time both this many times; at least 6, which a 95 % interval needs.",
)
@common.DEVICE
@common.PYTHON
@click.option(
    "--nproc-per-node",
    type=click.IntRange(min=1),
    help="Train in so many processes at once on this host. Default: as A says.",
)
@common.LAUNCH
@common.FRESH_DATA
@scripts.AS_MODULE
@scripts.MAP
@scripts.PRESET
@scripts.WORKDIR
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
@click.option(
    "--require-faster",
    is_flag=True,
    help="Exit with 8 if A no longer has its confirmed speed-up or, given B or edited in the file, "
    "is not faster.",
)
@common.STRICT
def compare(model: Path, as_json: bool, require_faster: bool, strict: bool, **flags: Any) -> None:
    """Time the settings of A against those of B, or against MODEL's own, in alternation.

    MODEL is a model.py, or an unchanged training script, whose arguments follow a `--`. A script
    may also be an installed command, or with -m a module.
    """
    from autotune.commands.execute import execute_comparison
    from autotune.comparison.compare import ComparisonOptions, side_of
    from autotune.configuration.best_config import read_best

    common.check_processes(flags)
    files = [path for path in (flags["a"], flags["b"]) if path is not None]
    answers = [read_best(path) for path in files]
    known = [text for answer in answers for text in answer.maps]
    _check_hosts(answers[0], flags)
    flags["nproc_per_node"] = flags["nproc_per_node"] or answers[0].processes or 1
    model, script = scripts.called_script(model, flags, known)
    for best in files:
        common.tell_mismatches(best, model, strict, flags["python"], flags["nproc_per_node"])
    a, b = (side_of(flags.pop(name)) for name in ("a", "b"))
    flags["processes"] = flags.pop("nproc_per_node")
    unwind_on_sigterm()
    is_met = execute_comparison(ComparisonOptions(model, a, b, **flags, script=script), as_json)
    sys.exit(_NOT_FASTER if require_faster and not is_met else 0)


def _check_hosts(answer: BestConfig, flags: dict[str, Any]) -> None:
    """Refuse to start on this host the processes that A spread over several.

    Raises:
        UsageError: neither flag says where the processes are.
    """
    on_each = answer.processes_per_host
    if on_each is None or flags["launch"] is not None or flags["nproc_per_node"] is not None:
        return
    raise UsageError(
        f"{flags['a']} is of {answer.processes} processes, at most {on_each} on a host. Start them "
        "on as many hosts by --launcher COMMAND, or compare on this one by --nproc-per-node N."
    )
