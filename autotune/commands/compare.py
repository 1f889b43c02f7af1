"""Times two configurations in turns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from autotune.commands import common
from autotune.errors import UsageError

_NOT_FASTER = 8


@click.command()
@common.MODEL
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path), required=False)
@click.option(
    "--rounds",
    type=click.IntRange(min=6),
    default=9,
    show_default=True,
    help="Each times both once; six are the fewest that give a 95 % interval.",
)
@common.DEVICE
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@click.option(
    "--require-faster",
    is_flag=True,
    help="Exit with 8 where the speed-up that A states has gone; given B, unless A is faster.",
)
@common.STRICT
def compare(model: Path, as_json: bool, require_faster: bool, strict: bool, **flags: Any) -> None:
    """Time the settings of A against those of B, or of MODEL itself, in turns."""
    from autotune.drive import drive_comparison
    from autotune.script import is_script
    from autotune.tuning.confirming.compare import ComparisonOptions, side_of

    common.check_model(model)
    if is_script(model.read_bytes()):
        raise UsageError(
            f"{model} was read as a training script, because it defines no part of a model.py; "
            "compare is for a model.py. `autotune search` of a script confirms what it finds."
        )
    for best in filter(None, (flags["a"], flags["b"])):
        common.tell_mismatches(best, model, strict)
    a, b = (side_of(flags.pop(name)) for name in ("a", "b"))
    common.unwind_on_sigterm()
    is_met = drive_comparison(ComparisonOptions(model, a, b, **flags), as_json)
    sys.exit(_NOT_FASTER if require_faster and not is_met else 0)
