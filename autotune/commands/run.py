"""Runs a training script that nobody changed under the settings of a best.yaml."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autotune.commands import common
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.best import BestConfig
    from autotune.script import Plan

# What is in the place of a script's first line; a module that loads torch is not imported for it.
_START = "from autotune.scripting.run import main; main()"


class _BeforeTheScript(click.Command):
    """Takes options on either side of BEST; whatever follows the script's name is the script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Bring the options to the front."""
        named = self._from_first_name(ctx, args)
        best, script = named[:1], self._from_first_name(ctx, named[1:])
        before = args[: len(args) - len(named)]
        between = named[1 : len(named) - len(script)]
        options = [word for word in (*before, *between) if word != "--"]
        return super().parse_args(ctx, [*options, "--", *best, *script])

    def _from_first_name(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments from the first one on that is neither an option nor the value of one."""
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        best, command = found.get("best"), found.get("command")
        names = [best, *(command if isinstance(command, tuple) else ())]
        count = sum(isinstance(name, str) for name in names)
        return args[len(args) - count :]


@click.command(
    cls=_BeforeTheScript,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.argument("best", type=click.Path(path_type=Path))
@click.argument("command", metavar="SCRIPT [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module, as for python -m.")
@click.option(
    "--allow",
    type=click.Choice(["numerics"]),
    help="Also what rounds otherwise: compile, bfloat16, fused optimizer, channels_last.",
)
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="KNOB=FLAG",
    help="A flag of the script's own: batch_size=--batch-size, amp_dtype:float16=--fp16.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse another machine or a changed script, and what cannot be applied.",
)
@click.option("--print-command", is_flag=True, help="Show environment and arguments; run nothing.")
def run(best: Path, command: tuple[str, ...], as_module: bool, **flags: Any) -> None:
    """Run SCRIPT, unchanged, under the settings of BEST.

    Options stand before SCRIPT; everything after it is passed to it as it is. What was applied, and
    what was not, is said on stderr when it has ended.
    """
    from autotune.best import read_best
    from autotune.config import TrainingConfig, environ_of
    from autotune.script import flag_from, plan_run, with_flags

    if not command:
        raise UsageError("Name the script to run: autotune run best.yaml train.py --epochs 3")
    answer, (script, *arguments) = read_best(best), command
    if not as_module:
        _check_script(script)
    config, maps = answer.training_config, [flag_from(text) for text in flags["maps"]]
    plan = plan_run(config, answer.evidence.baseline.config, maps, flags["allow"] is not None)
    if (factor := answer.lr_scaling.factor) != 1:
        plan.withheld[f"learning rate x {factor:g}"] = "the script sets its own"
    measured = None if as_module else _if_measured(script, answer)
    common.tell_mismatches(best, measured, flags["strict"])
    if flags["strict"]:
        _refuse_withheld(plan)
    words = [*(["-m"] if as_module else []), script, *with_flags(arguments, maps, config)]
    # -P: nothing that lies where the script is started may be taken for a part of autotune.
    program = [sys.executable, "-P", "-c", _START, plan.to_json(), *words]
    environment = environ_of(TrainingConfig.of(plan.settings))
    if flags["print_command"]:
        settings = [f"{name}={value}" for name, value in environment.items()]
        click.echo(shlex.join([*(["env", *settings] if settings else []), *program]))
        return
    _become(program, environment)


def _become(program: list[str], environment: dict[str, str]) -> NoReturn:
    """Put the program in the place of this process: same number, terminal, signals, exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program[0], program, {**os.environ, **environment})  # noqa: S606 - no shell is meant


def _check_script(script: str) -> None:
    path = Path(script)
    if not path.exists():
        raise UsageError(f"{script} does not exist. Name a script, or a module after -m.")
    if path.is_dir() or not os.access(path, os.R_OK):
        raise UsageError(f"{script} is not a Python file that can be read.")


def _if_measured(script: str, answer: BestConfig) -> Path | None:
    """The script, where it is what the answer is of: one of a model.py is for any script."""
    path = Path(script)
    return path if path.name == Path(answer.provenance.model).name else None


def _refuse_withheld(plan: Plan) -> None:
    if plan.withheld:
        lines = [f"{setting} {reason}." for setting, reason in plan.withheld.items()]
        raise UsageError("\n".join([*lines, "Say how to apply them, or go without --strict."]))
