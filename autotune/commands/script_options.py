"""Options of `search` for training scripts, and the distinction from a model.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.commands import common
from autotune.values.errors import UsageError

if TYPE_CHECKING:
    from autotune.calling.flag import Flag
    from autotune.configuration.script import ScriptOptions
    from autotune.process.common.interpreter import Interpreter

_ARGUMENTS = "autotune.arguments"
_NO_MAP = "none"
_OF_SCRIPTS = (
    *("as_module", "only", "maps", "preset"),
    *("metric_regex", "metric_mode", "workdir"),
)
ONLY = click.option(
    "--only",
    type=click.Choice(["exact"]),
    help="Try only settings that leave a script's arithmetic alone: no compile, no bfloat16.",
)
AS_MODULE = click.option(
    "-m", "as_module", is_flag=True, help="Run MODEL as a module, as python -m does."
)
WORKDIR = click.option(
    "--workdir",
    metavar="DIR|temporary",
    help="Run each trial of a script in a folder of its own below DIR, or in one that is removed "
    "when the trial has ended. Default: the current folder.",
)
MAP = click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="KNOB=WAY",
    help="Set a knob by what the script takes: batch_size=--batch-size, batch_size=train.bs (a "
    "word train.bs=64), env:BATCH_SIZE, or --config:train.bs (a key of its config file). "
    "Repeatable. Default: a flag of the script whose name and value leave no doubt; none: no flag.",
)
PRESET = click.option(
    "--preset",
    metavar="NAME",
    help="Map the batch flags of a family of scripts: hf, lightning or timm. --map comes before.",
)
METRIC_REGEX = click.option(
    "--metric-regex",
    metavar="REGEX",
    help="Find a script's quality in its output, such as 'accuracy ([0-9.]+)'. Default: its "
    "training loss, if that can judge.",
)
METRIC_MODE = click.option(
    "--metric-mode",
    type=click.Choice(["max", "min"]),
    help="Take a higher (max) or lower (min) quality as better. Default: max.",
)


class ScriptCommand(click.Command):
    """A command that keeps the words after the first `--`, unchanged, for the script."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before the first `--`.

        Raises:
            click.UsageError: there are others than options and MODEL.
        """
        if "--" in args:
            place = args.index("--")
            ctx.meta[_ARGUMENTS] = tuple(args[place + 1 :])
            args = args[:place]
        try:
            left = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            near = f" The command itself has {' and '.join(error.possibilities or ())}."
            fault = f"No such option {name!r}.{near if error.possibilities else ''}"
            raise _for_the_script(ctx, name, fault) from error
        if left:
            raise _for_the_script(ctx, left[0], f"{left[0]!r} is no option.")
        return left


def _for_the_script(ctx: click.Context, word: str, fault: str) -> click.UsageError:
    """Return the error for a word that may be meant for the script."""
    return click.UsageError(
        f"{fault} What is for the script follows a --: {ctx.command_path} train.py -- {word} ...",
        ctx,
    )


def arguments_given() -> tuple[str, ...] | None:
    """Return the words after the `--` of this command line; None without `--`."""
    return click.get_current_context().meta.get(_ARGUMENTS)


def script_options(
    model: Path, flags: dict[str, Any], arguments: Sequence[str] | None
) -> ScriptOptions | None:
    """Return the options of a script; None if `model` is a model.py.

    Args:
        model: the file to train, the name of a module, or an installed command.
        flags: flags of the command; those of scripts are removed, and "model" becomes the file.
        arguments: the script's arguments. None: the file's content decides if it is a script.

    Raises:
        UsageError: flags that do not fit the kind of file; all are named.
    """
    from autotune.calling.flag import flag_from, preset_maps
    from autotune.configuration.script import ScriptOptions

    own = {name: flags.pop(name) for name in _OF_SCRIPTS}
    module = str(model) if own.pop("as_module") else None
    model = flags["model"] = _file_of(model, module, flags["python"])
    common.check_model(model, flags["python"])
    if arguments is None and module is None and not _is_script(model):
        given = (f"--{name.rstrip('s').replace('_', '-')}" for name, value in own.items() if value)
        _check_for_scripts(model, list(given))
        return None
    maps = tuple(flag_from(text) for text in own["maps"] if text != _NO_MAP)
    options = ScriptOptions(
        arguments=tuple(arguments or ()),
        flags=maps,
        preset=preset_maps(own["preset"], maps),
        proposes=_NO_MAP not in own["maps"],
        only_exact=own["only"] is not None,
        metric=own["metric_regex"],
        higher_is_better=own["metric_mode"] != "min",
        module=module,
        workdir=_workdir(own["workdir"]),
    )
    faults = [*_faults(options), *_misplaced(flags)]
    if faults:
        raise UsageError("\n".join(f"{model} was read as a training script: {f}" for f in faults))
    return options


def _file_of(model: Path, module: str | None, python: Interpreter) -> Path:
    """Return the file of a module, or of an installed command; other files as they are.

    Raises:
        UsageError: there is no such module, or the command is one of another environment.
    """
    from autotune.calling.target import console_command, module_file

    if module is not None:
        return module_file(module, python)
    return model if model.exists() else console_command(str(model), python) or model


def _workdir(place: str | None) -> str | None:
    """Return the folder for trials as an absolute path, or the word for temporary ones.

    Raises:
        UsageError: it is a file, or cannot be made.
    """
    from autotune.process.common.trial_folder import TEMPORARY

    if place is None or place == TEMPORARY:
        return place
    try:
        Path(place).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--workdir {place}: {error.strerror}. Name a folder.") from error
    return str(Path(place).resolve())


def called_script(
    model: Path, flags: dict[str, Any], known: Sequence[str] = ()
) -> tuple[Path, ScriptOptions | None]:
    """Return the file to train, and how a command that keeps no trained model calls a script.

    The options are None for a model.py. Every setting may then be applied: nothing is kept that it
    could spoil.

    Args:
        model: the file to train, the name of a module, or an installed command.
        flags: flags of the command; those of scripts are removed.
        known: maps of the searches whose settings are applied; those of --map come before.

    Raises:
        UsageError: flags that do not fit the kind of file; all are named.
    """
    from autotune.calling.config_file import check_files
    from autotune.calling.flag import flag_from, preset_maps
    from autotune.configuration.script import ScriptOptions

    module = str(model) if flags.pop("as_module", False) else None
    maps, preset = flags.pop("maps", ()), flags.pop("preset", None)
    workdir = flags.pop("workdir", None)
    model = _file_of(model, module, flags["python"])
    common.check_model(model, flags["python"])
    arguments = arguments_given()
    if arguments is None and module is None and not _is_script(model):
        named = {"--map": maps, "--preset": preset, "--workdir": workdir}
        _check_for_scripts(model, [name for name, value in named.items() if value])
        return model, None
    given = {text.partition("=")[0] for text in maps}
    unnamed = dict.fromkeys(text for text in known if text.partition("=")[0] not in given)
    own = tuple(flag_from(text) for text in (*maps, *unnamed) if text != _NO_MAP)
    options = ScriptOptions(
        arguments or (),
        own,
        preset_maps(preset, own),
        proposes=_NO_MAP not in maps,
        keeps_nothing=True,
        module=module,
        workdir=_workdir(workdir),
    )
    faults = [*_misplaced(flags), *check_files(options.flags, options.arguments)]
    if faults:
        raise UsageError("\n".join(f"{model} was read as a training script: {f}" for f in faults))
    return model, options


def _check_for_scripts(model: Path, given: Sequence[str]) -> None:
    """Raise a UsageError if options for scripts are given beside a model.py."""
    if given:
        raise UsageError(
            f"{model} was read as a model.py, because it defines a part of one; {given[0]} is "
            f"for training scripts. To have it run as a script, write: {model} --"
        )


def _is_script(model: Path) -> bool:
    from autotune.calling.target import is_script

    return is_script(model)


def _faults(options: ScriptOptions) -> Iterator[str]:
    """Yield the faults of options that a search of a script cannot meet."""
    from autotune.calling.config_file import check_files
    from autotune.configuration.training_config import BATCH_KNOBS

    changing = [f"--map {f.knob}={f.name}" for f in options.flags if f.knob in BATCH_KNOBS]
    if changing and options.only_exact:
        yield f"--only exact contradicts {' and '.join(changing)}. Leave one of them out."
    yield from _unsearchable(options.flags)
    yield from check_files(options.flags, options.arguments)
    try:
        re.compile(options.metric or "")
    except re.error as error:
        yield f"--metric-regex {options.metric!r} is no regular expression: {error}."


def _unsearchable(flags: Sequence[Flag]) -> Iterator[str]:
    from autotune.configuration.script import is_harmless
    from autotune.configuration.training_config import BATCH_KNOBS
    from autotune.knobs import KNOBS

    for flag in flags:
        if flag.knob not in BATCH_KNOBS and not is_harmless(KNOBS[flag.knob]):
            yield (
                f"--map {flag.knob} is for `autotune run` and `compare`; a search maps "
                f"{' and '.join(BATCH_KNOBS)}, and settings that change nothing in training."
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
