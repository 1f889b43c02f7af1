"""Options for training scripts, and the distinction from a model.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from autotune.calling.arguments import check_files
from autotune.calling.flag import LEARNING_RATE, flag_from, preset_maps
from autotune.calling.target import console_command, is_script, module_file
from autotune.commands import common
from autotune.configuration.script import RateFlag, ScriptOptions, is_harmless
from autotune.configuration.training_config import BATCH_KNOBS
from autotune.knobs import KNOBS
from autotune.process.common.trial_folder import TEMPORARY
from autotune.process.devices import Device, seen_alone
from autotune.values.errors import UsageError

_ARGUMENTS, _IS_FRONT = "autotune.arguments", "autotune.is_front"
EXACT_ONLY = common.flag(
    "--exact-only",
    "Try only settings that preserve results, such as workers: no compile, no bfloat16.",
)
AS_MODULE = common.flag("-m as_module", "Run a module by its name, as python -m does.")
_WAYS = (
    "batch_size=--batch-size, batch_size=train.bs (an argument train.bs=64), env:BATCH_SIZE, "
    "--config:train.bs (a key of its config file), or call:module.Class.argument"
)
MAP = common.option(
    "--map maps",
    f"Pass a setting to the script in its own way: {_WAYS}. Repeatable. Default: a search finds "
    "unambiguous flags itself, and best.yaml keeps them.",
    metavar="SETTING=WAY",
    multiple=True,
)
NO_MAP = common.flag("--no-map", "Leave the script's flags alone, except those that --map names.")
PRESET = common.option(
    "--preset",
    "Map the usual batch-size flags of one kind of script: hf, lightning or timm. --map "
    "overrides it. hf also tries gradient checkpointing, attention and Liger kernels.",
    metavar="NAME",
)
WORKDIR = common.option(
    "--workdir",
    "Run each trial of a script in its own directory below DIR. Default: the current directory.",
    metavar="DIR",
)
TEMP_WORKDIR = common.flag(
    "--temp-workdir",
    "Run each trial of a script in a temporary directory, which is removed afterwards.",
)
METRIC_REGEX = common.option(
    "--metric-regex",
    "Find a script's quality metric in its output, such as 'accuracy ([0-9.]+)'. Default: its "
    "training loss, if that drops clearly.",
    metavar="REGEX",
)
METRIC_MODE = common.option(
    "--metric-mode",
    "Higher (max) or lower (min) values of the metric are better. Default: max.",
    click.Choice(["max", "min"]),
)
CALLED = (AS_MODULE, MAP, NO_MAP, PRESET, WORKDIR, TEMP_WORKDIR)
"""Options of every command that runs a script."""
JUDGED = (METRIC_REGEX, METRIC_MODE, EXACT_ONLY)
"""Options on the quality of a script, for a search."""
_SPELLED = {str(one.name): one.opts[0] for one in (*CALLED, *JUDGED)}


Sections = Mapping[str, Sequence[click.Option]]
"""Options of a command by the sections of its help."""


def _show_front(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        ctx.meta[_IS_FRONT] = True
        click.echo(ctx.get_help())
        ctx.exit()


_SHORT_HELP = common.flag(
    "-h front",
    "Show the options that most people need.",
    is_eager=True,
    expose_value=False,
    callback=_show_front,
)


class ScriptCommand(click.Command):
    """A command that keeps the words after the first `--`, unchanged, for the script.

    Its options may come in sections. If `front` names some of them, `-h` shows only these.
    """

    allow_extra_args = True

    def __init__(
        self,
        *,
        params: Sequence[click.Parameter],
        sections: Sections | None = None,
        front: Sequence[str] = (),
        **more: Any,
    ) -> None:
        self.sections, self.front = sections or {}, front
        options = [one for part in self.sections.values() for one in part]
        short_help = [_SHORT_HELP] if front else []
        super().__init__(params=[*params, *options, *short_help], **more)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section; for `-h` those of the front page."""
        placed = [one for part in self.sections.values() for one in part]
        known = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        rest = "Help" if placed else "Options"
        parts = {**self.sections, rest: [one for one in known if one not in placed]}
        if _IS_FRONT in ctx.meta:
            parts = {"Options": [one for one in placed if one.name in self.front]}
        for title, options in parts.items():
            with formatter.section(title):
                records = (one.get_help_record(ctx) for one in options)
                formatter.write_dl([record for record in records if record is not None])
        if _IS_FRONT in ctx.meta:
            formatter.write(f"\nAll options: {ctx.command_path} --help\n")

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the usage line, with the script's arguments at its end."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]

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
            near = f" Did you mean {' or '.join(error.possibilities or ())}?"
            fault = f"No such option {name!r}.{near if error.possibilities else ''}"
            raise _for_the_script(ctx, name, fault) from error
        if left:
            raise _for_the_script(ctx, left[0], f"Unexpected argument {left[0]!r}.")
        return left


def _for_the_script(ctx: click.Context, word: str, fault: str) -> click.UsageError:
    """Return the error for a word that may be meant for the script."""
    return click.UsageError(
        f"{fault} Arguments of the script go after --: {ctx.command_path} train.py -- {word} ...",
        ctx,
    )


def arguments_given() -> tuple[str, ...] | None:
    """Return the words after the `--` of this command line; None without `--`."""
    return click.get_current_context().meta.get(_ARGUMENTS)


def called_script(
    model: Path, flags: dict[str, Any], known: Sequence[str] = (), watch_seconds: float = 0.0
) -> tuple[Path, ScriptOptions | None]:
    """Return the file to train, and the options of a script, for a command that keeps no model.

    The options are None for a model.py. Every setting may be applied, because no trained model is
    kept. `known` are the maps of the searches; --map overrides them. The observed run watches the
    loop for `watch_seconds`. See `script_options`.
    """
    model, script = script_options(model, flags, arguments_given(), known, keeps_nothing=True)
    return model, script and replace(script, watch_seconds=watch_seconds)


def script_options(
    model: Path,
    flags: dict[str, Any],
    arguments: Sequence[str] | None,
    known: Sequence[str] = (),
    *,
    keeps_nothing: bool = False,
) -> tuple[Path, ScriptOptions | None]:
    """Return the file to train, and the options of a script; None if it is a model.py.

    A model may also be the name of a module, or an installed command. Flags of scripts are removed
    from `flags`. Without arguments, the file's content decides if it is a script. `known` has
    further maps, for knobs that the flags do not map.

    Raises:
        UsageError: flags that do not fit the kind of file; all are named.
    """
    own = {name: flags.pop(name, None) for name in _SPELLED}
    module = str(model) if own.pop("as_module") else None
    if module is not None:
        model = module_file(module)
    elif not model.exists():
        model = console_command(str(model)) or model
    common.check_model(model)
    if arguments is None and module is None and not is_script(model):
        for name in (name for name, value in own.items() if value):
            raise UsageError(
                f"{_SPELLED[name]} is for training scripts, and {model} defines functions of a "
                f"model.py. To run it as a script, write: {model} --"
            )
        return model, None
    given = list(own["maps"] or ())
    mapped = {text.partition("=")[0] for text in given}
    given += [text for text in dict.fromkeys(known) if text.partition("=")[0] not in mapped]
    every = tuple(map(flag_from, given))
    maps = tuple(flag for flag in every if flag.knob != LEARNING_RATE)
    rates = [RateFlag(flag) for flag in every if flag not in maps]
    options = ScriptOptions(
        arguments=tuple(arguments or ()),
        flags=maps,
        preset=preset_maps(own["preset"], maps),
        preset_name=own["preset"],
        proposes=not own["no_map"],
        only_exact=bool(own["exact_only"]),
        metric=own["metric_regex"],
        higher_is_better=own["metric_mode"] != "min",
        keeps_nothing=keeps_nothing,
        module=module,
        workdir=_workdir(own["workdir"], bool(own["temp_workdir"])),
        rate=rates[-1] if rates else None,
    )
    faults = [*_faults(options), *_misplaced(flags)]
    if rates and flags.get("lr_scaling", "none") == "none":
        faults.append(f"--map {rates[-1].flag.text} works with --lr-scaling of a search only.")
    if faults:
        raise UsageError(
            "\n".join(f"{model} is run as a training script: {fault}" for fault in faults)
        )
    return model, options


def as_seen(devices: Sequence[Device], script: ScriptOptions | None) -> tuple[Device, ...]:
    """Return the devices of trials; the processes of a script see only their own."""
    return tuple(devices if script is None else map(seen_alone, devices))


def _workdir(place: str | None, is_temporary: bool) -> str | None:
    """Return the directory for trials as an absolute path, or the word for temporary ones."""
    if is_temporary and place is not None:
        raise UsageError(f"--workdir {place} with --temp-workdir: give only one of them.")
    if is_temporary or place is None:
        return TEMPORARY if is_temporary else None
    try:
        Path(place).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--workdir {place}: {error.strerror}. Name a directory.") from error
    return str(Path(place).resolve())


def _faults(options: ScriptOptions) -> Iterator[str]:
    """Yield why a script cannot be run with these options."""
    changing = [f"--map {f.knob}={f.name}" for f in options.flags if f.knob in BATCH_KNOBS]
    if changing and options.only_exact:
        yield f"--exact-only contradicts {' and '.join(changing)}. Leave one of them out."
    for flag in () if options.keeps_nothing else options.flags:
        if flag.knob not in BATCH_KNOBS and not is_harmless(KNOBS[flag.knob]):
            yield (
                f"--map {flag.knob} is for `autotune run` and `compare`. A search maps "
                f"{' and '.join(BATCH_KNOBS)}, and settings that do not change training."
            )
    yield from check_files(options.flags, options.arguments)
    try:
        re.compile(options.metric or "")
    except re.error as error:
        yield f"--metric-regex {options.metric!r} is not a regular expression: {error}."


def _misplaced(flags: dict[str, Any]) -> Iterator[str]:
    """Yield the faults of flags that are for a model.py."""
    if flags.get("device", "auto") != "auto":
        yield f"--device {flags['device']}: the script chooses its device; use its own arguments."
    if flags.get("baseline"):
        yield "--baseline: the script's own settings are the baseline; change its arguments."
    if flags.get("fresh_data"):
        yield "--fresh-data is for a model.py; each process of a script builds its data anyway."
    if flags.get("min_accuracy") is not None:
        yield "--min-accuracy needs evaluate() of a model.py."
