"""Options of `search` for training scripts, and the distinction from a model.py."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.commands import common
from autotune.values.errors import UsageError

if TYPE_CHECKING:
    from autotune.configuration.script import Flag, ScriptOptions

_ARGUMENTS = "autotune.arguments"
ALLOW = click.option(
    "--allow",
    type=click.Choice(["numerics"]),
    help="Also try settings that change a script's arithmetic, such as compile and bfloat16; "
    "needs --metric-regex.",
)
MAP = click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="KNOB=FLAG",
    help="Set a knob by a flag of the script, such as batch_size=--batch-size. Repeatable.",
)
METRIC_REGEX = click.option(
    "--metric-regex",
    metavar="REGEX",
    help="Find a script's quality in its output, such as 'accuracy ([0-9.]+)'.",
)
METRIC_MODE = click.option(
    "--metric-mode",
    type=click.Choice(["max", "min"]),
    help="Take a higher (max) or lower (min) quality as better. Default: max.",
)


class ScriptCommand(click.Command):
    """A command that keeps the words after the first `--`, unchanged, for the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before the first `--`."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[_ARGUMENTS] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


def arguments_given() -> tuple[str, ...] | None:
    """Return the words after the `--` of this command line; None without `--`."""
    return click.get_current_context().meta.get(_ARGUMENTS)


def script_options(
    model: Path, flags: dict[str, Any], arguments: Sequence[str] | None
) -> ScriptOptions | None:
    """Return the options of a script; None if `model` is a model.py.

    Args:
        model: the file to train.
        flags: flags of the command; those of scripts are removed.
        arguments: the script's arguments. None: the file's content decides if it is a script.

    Raises:
        UsageError: flags that do not fit the kind of file; all are named.
    """
    from autotune.configuration.script import ScriptOptions, flag_from

    own = {name: flags.pop(name) for name in ("allow", "maps", "metric_regex", "metric_mode")}
    common.check_model(model)
    if arguments is None and not _is_script(model):
        given = [f"--{name.rstrip('s').replace('_', '-')}" for name, value in own.items() if value]
        if given:
            raise UsageError(
                f"{model} was read as a model.py, because it defines a part of one; {given[0]} is "
                f"for training scripts. To have it run as a script, write: {model} --"
            )
        return None
    options = ScriptOptions(
        arguments=tuple(arguments or ()),
        flags=tuple(flag_from(text) for text in own["maps"]),
        allow_numerics=own["allow"] is not None,
        metric=own["metric_regex"],
        higher_is_better=own["metric_mode"] != "min",
    )
    faults = [*_faults(options), *_misplaced(flags)]
    if faults:
        raise UsageError("\n".join(f"{model} was read as a training script: {f}" for f in faults))
    return options


def called_script(
    model: Path, flags: dict[str, Any], maps: Sequence[str] = ()
) -> ScriptOptions | None:
    """Return how a command that keeps no trained model calls a script; None for a model.py.

    Every setting may then be applied: nothing is kept that it could spoil.

    Args:
        model: the file to train.
        flags: flags of the command.
        maps: values of --map.

    Raises:
        UsageError: flags that do not fit the kind of file; all are named.
    """
    from autotune.configuration.script import ScriptOptions, flag_from

    common.check_model(model)
    arguments = arguments_given()
    if arguments is None and not _is_script(model):
        if maps:
            raise UsageError(
                f"{model} was read as a model.py, because it defines a part of one; --map is for "
                f"training scripts. To have it run as a script, write: {model} --"
            )
        return None
    mapped = tuple(flag_from(text) for text in maps)
    options = ScriptOptions(arguments or (), mapped, allow_numerics=True)
    faults = [*_of_processes(), *_misplaced(flags)]
    if faults:
        raise UsageError("\n".join(f"{model} was read as a training script: {f}" for f in faults))
    return options


def _is_script(model: Path) -> bool:
    from autotune.configuration.script import is_script

    return is_script(model.read_bytes())


def _faults(options: ScriptOptions) -> Iterator[str]:
    """Yield the faults of options that a search of a script cannot meet."""
    from autotune.configuration.training_config import BATCH_KNOBS

    changing = ["--allow numerics"] if options.allow_numerics else []
    changing += [f"--map {f.knob}={f.name}" for f in options.flags if f.knob in BATCH_KNOBS]
    if changing and options.metric is None:
        yield (
            f"{' and '.join(changing)} can change the accuracy, and only the script knows its "
            "metric: add --metric-regex, such as --metric-regex 'accuracy ([0-9.]+)'."
        )
    yield from _unsearchable(options.flags)
    try:
        re.compile(options.metric or "")
    except re.error as error:
        yield f"--metric-regex {options.metric!r} is no regular expression: {error}."
    yield from _of_processes()


def _of_processes() -> Iterator[str]:
    world = os.environ.get("WORLD_SIZE", "1")
    if world not in ("", "1"):
        yield (
            f"WORLD_SIZE={world} is in the environment, and autotune trains in one "
            "process so far. Start it without torchrun."
        )


def _unsearchable(flags: Sequence[Flag]) -> Iterator[str]:
    from autotune.configuration.script import is_harmless
    from autotune.configuration.training_config import BATCH_KNOBS
    from autotune.knobs import KNOBS

    for flag in flags:
        if flag.knob not in BATCH_KNOBS and not is_harmless(KNOBS[flag.knob]):
            yield (
                f"--map {flag.knob} is for `autotune run`; a search maps "
                f"{' and '.join(BATCH_KNOBS)} alone."
            )


def _misplaced(flags: dict[str, Any]) -> Iterator[str]:
    if flags.get("device", "auto") != "auto":
        yield f"--device {flags['device']}: the script chooses its device; use its own arguments."
    if flags.get("baseline"):
        yield "--baseline: the script's own settings are the baseline; change its arguments."
    if flags.get("lr_scaling", "none") != "none":
        yield f"--lr-scaling {flags['lr_scaling']}: the script sets its own learning rate."
    if flags.get("unit") == "tokens":
        yield "--unit tokens is for count_tokens() of a model.py; a script has no such function."
    if flags.get("fresh_data"):
        yield "--fresh-data: each process of a script builds its data anyway."
    if flags.get("min_accuracy") is not None:
        yield "--min-accuracy is for evaluate() of a model.py."
