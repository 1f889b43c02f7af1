"""Command `run`: run an unchanged training script under the settings of a best.yaml."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autotune.commands import common
from autotune.process.common.interpreter import APPLIES
from autotune.values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.calling.flag import Flag
    from autotune.configuration.best_config import BestConfig
    from autotune.configuration.script import Plan
    from autotune.process.common.interpreter import Interpreter
# Code of the interpreter that runs the script; it imports nothing that loads torch.
_START = "from autotune.scripting.run import main; main()"


class _BeforeTheScript(click.Command):
    """A command with options on either side of BEST; words after SCRIPT belong to the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the options to the front, then parse."""
        named = self._from_first_name(ctx, args)
        best, script = named[:1], self._from_first_name(ctx, named[1:])
        before = args[: len(args) - len(named)]
        between = named[1 : len(named) - len(script)]
        options = [word for word in (*before, *between) if word != "--"]
        # Before arguments a search needs `--`, which no script does.
        arguments = script[2 if script[1:2] == ["--"] else 1 :]
        return super().parse_args(ctx, [*options, "--", *best, *script[:1], *arguments])

    def _from_first_name(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments from the first one that is neither an option nor its value."""
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        best, command = found.get("best"), found.get("command")
        names = [best, *(command if isinstance(command, tuple) else ())]
        count = sum(isinstance(name, str) for name in names)
        return args[len(args) - count :]


@click.command(
    cls=_BeforeTheScript,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
    short_help="Run a script under the settings of a best.yaml.",
)
@click.argument("best", type=click.Path(path_type=Path))
@click.argument("command", metavar="SCRIPT [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "as_module", is_flag=True, help="Run SCRIPT as a module, as python -m does.")
@click.option(
    "--allow",
    type=click.Choice(["numerics"]),
    help="Also apply settings that change the arithmetic (compile, bfloat16, fused optimizer, "
    "channels_last) where BEST has no evidence of them for SCRIPT.",
)
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="KNOB=WAY",
    help="Set a knob by what the script takes: batch_size=--batch-size, amp_dtype:float16=--fp16, "
    "batch_size=train.bs (a word train.bs=64), env:BATCH_SIZE, or --config:train.bs (a key of its "
    "config file). Repeatable.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse another machine, a changed script, edited settings, and what cannot be applied. "
    "Default: warn.",
)
@click.option(
    "--nproc-per-node",
    type=click.IntRange(min=1),
    help="Run SCRIPT in so many processes, by torch's launcher. Default: in this process.",
)
@common.python_option(APPLIES)
@click.option("--print-command", is_flag=True, help="Print environment and command; run nothing.")
def run(best: Path, command: tuple[str, ...], as_module: bool, **flags: Any) -> None:
    """Run SCRIPT, unchanged, under the settings of BEST.

    Options stand before SCRIPT; the words after it are passed to it unchanged. Before it starts,
    stderr says which settings are to be applied, and at its end which were.
    """
    from autotune.calling.config_file import check_files
    from autotune.calling.flag import flag_from, variables_of
    from autotune.configuration.best_config import read_best
    from autotune.configuration.script import with_flags
    from autotune.configuration.training_config import TrainingConfig, environ_of
    from autotune.console.run_lines import start_lines

    if not command:
        raise UsageError("Name the script to run: autotune run best.yaml train.py --epochs 3")
    answer, (script, *arguments) = read_best(best), command
    python: Interpreter = flags["python"]
    script = _checked(script, as_module, python)
    measured = _if_measured(script, as_module, answer, python)
    doubt = _doubt(answer, script, measured, arguments)
    allow = flags["allow"] is not None or (not doubt and answer.judged_numerics)
    known = () if measured is None else _known_maps(answer, flags["maps"], allow or not doubt)
    maps = [flag_from(text) for text in (*flags["maps"], *known)]
    if faults := list(check_files(maps, arguments)):
        raise UsageError("\n".join(faults))
    plan = _planned(answer, maps, allow, is_measured=measured is not None)
    config = TrainingConfig.of(plan.settings)
    common.tell_mismatches(best, measured, flags["strict"], python, flags["nproc_per_node"])
    if flags["strict"]:
        _refuse_withheld(plan)
    for line in start_lines(plan, maps, answer.maps, arguments, "" if allow else doubt):
        common.say(line)
    words = [*(["-m"] if as_module else []), script, *with_flags(arguments, maps, config)]
    # -P: files in the current folder must not shadow modules of autotune.
    program = [str(python.path), "-P", "-c", _START, plan.to_json(), *words]
    program = [*_launcher(python, flags["nproc_per_node"]), *program]
    asked = {**environ_of(config, python.torch), **variables_of(maps, config.every())}
    environment = {**python.environ, **asked}
    if flags["print_command"]:
        settings = [f"{name}={value}" for name, value in environment.items()]
        click.echo(shlex.join([*(["env", *settings] if settings else []), *program]))
        return
    _become(program, environment)


def _doubt(answer: BestConfig, script: str, measured: Path | None, arguments: Sequence[str]) -> str:
    """Return why the file's evidence may not hold for this training; empty if it does."""
    from autotune.configuration.mismatch import changed_files, other_arguments
    from autotune.knobs.base import spelled

    if measured is None:
        made_for = Path(answer.provenance.model).name
        return f"the file was made for {made_for}, and this is {script}"
    doubts = [f"{file} has changed since" for file in changed_files(answer, measured)]
    edits = answer.edits.items()
    doubts += [
        f"the file has {name}={spelled(now)}, and {spelled(measured)} was measured"
        for name, (measured, now) in edits
        if answer.effect(name) != "exact"
    ]
    others = other_arguments(answer, arguments)
    if others is not None:
        named = ", ".join(name or "a word that stands alone" for name in others)
        doubts.append(
            f"{script} was measured with other arguments{named and f' ({named})'}, beyond its "
            "length, seed and places of results"
        )
    return ", and ".join(doubts)


def _planned(answer: BestConfig, maps: Sequence[Flag], allow: bool, *, is_measured: bool) -> Plan:
    """Return what to apply to a script; flags of the user's own are for the measured one alone."""
    from autotune.calling.flag import flag_from
    from autotune.configuration.script import own_flags, plan_run
    from autotune.knobs.base import spelled

    config, own = answer.training_config, answer.evidence.baseline.config
    foreign = {} if is_measured else {flag.knob: None for flag in own_flags(config)}
    plan = plan_run(config.replace(**foreign), own, maps, allow, answer.effects or {})
    plan.withheld.update(dict.fromkeys(foreign, "is a flag of another script"))
    for flag in map(flag_from, answer.maps):
        setting = f"{flag.knob}={spelled(config[flag.knob])}"
        if setting in plan.withheld:
            way = "needs --allow numerics" if is_measured else f"needs --map {flag.text}"
            plan.withheld[setting] = way
    if (factor := answer.lr_scaling.factor) != 1:
        plan.withheld[f"learning rate x {factor:g}"] = "the script sets its own"
    return plan


def _launcher(python: Interpreter, processes: int | None) -> list[str]:
    """Return the command of torch's launcher, which runs the program that follows so many times."""
    if processes is None:
        return []
    options = ["--standalone", "--nproc-per-node", str(processes), "--no-python"]
    return [str(python.path), "-m", "torch.distributed.run", *options]


def _become(program: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by the program, which keeps PID, terminal, signals and exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program[0], program, {**os.environ, **environment})  # noqa: S606 - no shell is meant


def _checked(script: str, as_module: bool, python: Interpreter) -> str:
    """Return the script, or the file of the installed command of that name.

    Raises:
        UsageError: there is no such file or module, or it is no Python program.
    """
    from autotune.calling.target import console_command, module_file

    if as_module:
        module_file(script, python)
        return script
    path = Path(script)
    if not path.exists() and (command := console_command(script, python)):
        return str(command)
    if not path.exists():
        raise UsageError(f"{script} does not exist. Name a script, or a module after -m.")
    if path.is_dir() or not os.access(path, os.R_OK):
        raise UsageError(f"{script} is not a Python file that can be read.")
    return script


def _if_measured(
    script: str, as_module: bool, answer: BestConfig, python: Interpreter
) -> Path | None:
    """Return the file of the script if it has the measured one's name or contents, else None.

    The result of a model.py may run any script.
    """
    from autotune.calling.target import module_file
    from autotune.configuration.mismatch import is_model

    path = module_file(script, python) if as_module else Path(script)
    has_name = path.name == Path(answer.provenance.model).name
    return path if has_name or is_model(answer, path) else None


def _known_maps(answer: BestConfig, given: Sequence[str], has_evidence: bool) -> list[str]:
    """Return the maps of the search that none of `given` replaces; without evidence exact ones."""
    from autotune.calling.flag import flag_from
    from autotune.knobs import KNOBS

    replaced = {text.partition("=")[0] for text in given}
    known = [text for text in answer.maps if text.partition("=")[0] not in replaced]
    return [t for t in known if has_evidence or KNOBS[flag_from(t).knob].effect == "exact"]


def _refuse_withheld(plan: Plan) -> None:
    if plan.withheld:
        lines = [f"{setting} {reason}." for setting, reason in plan.withheld.items()]
        raise UsageError("\n".join([*lines, "Say how to apply them, or go without --strict."]))
