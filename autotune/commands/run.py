"""Command `run`: run an unchanged training script under the settings of a best.yaml."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from autotune.calling.arguments import check_files
from autotune.calling.flag import LEARNING_RATE, Flag, flag_from, variables_of
from autotune.calling.target import console_command, module_file
from autotune.commands import common
from autotune.commands import script_options as scripts
from autotune.configuration import mismatch
from autotune.configuration.best_config import BestConfig, read_best
from autotune.configuration.script import Plan, RateFlag, own_flags, plan_run, with_flags
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig, environ_of
from autotune.knobs import KNOBS, knob_named
from autotune.knobs.base import spelled
from autotune.process.common.interpreter import APPLIES, check_torch, torch_version
from autotune.values.errors import UsageError
from autotune.values.text import by_reason, json_text

_ALLOW = "--allow-numerics"
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
# Code of the interpreter that runs the script; it imports nothing that loads torch.
_START = "from autotune.scripting.run import main; main()"


class _BeforeTheScript(click.Command):
    """A command with options on either side of BEST; arguments after SCRIPT are the script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the options to the front, then parse."""
        named = self._from_first_name(ctx, args)
        best, script = named[:1], self._from_first_name(ctx, named[1:])
        before = args[: len(args) - len(named)]
        between = named[1 : len(named) - len(script)]
        options = [word for word in (*before, *between) if word != "--"]
        # People may type the `--` that a search needs before arguments; no script needs it.
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
    params=[
        click.Argument(["best"], type=common.PATH),
        click.Argument(
            ["command"], metavar="SCRIPT [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED
        ),
        scripts.AS_MODULE,
        common.flag(
            "--allow-numerics",
            "Also apply settings that change rounding (compile, bfloat16, fused optimizer, "
            "channels_last) if BEST has no evidence that they suit SCRIPT.",
        ),
        scripts.MAP,
        common.flag(
            "--strict",
            "Refuse another machine, a changed script, edited settings, and settings that cannot "
            "be applied. Default: warn.",
        ),
        common.option(
            "--nproc-per-node",
            "Run SCRIPT in this many processes, started by torchrun. Default: in this process.",
            click.IntRange(min=1),
        ),
        common.flag("--print-command", "Print the command that would run SCRIPT, and stop."),
        common.flag("--json", "Let --print-command print JSON, with what is left out and why."),
    ],
    context_settings={"allow_interspersed_args": False},
)
def run(best: Path, command: tuple[str, ...], as_module: bool, **flags: Any) -> None:
    """Run SCRIPT, unchanged, under the settings of BEST.

    Options go before SCRIPT; everything after its name goes to the script. autotune reports on
    stderr which settings it is going to apply, and at the end which ones took effect.
    """
    if not command:
        raise UsageError("Name the script to run: autotune run best.yaml train.py --epochs 3")
    answer, (script, *arguments) = read_best(best), command
    check_torch(APPLIES)
    script, path = _found(script, as_module)
    # The result of a model.py may be applied to any script.
    has_name = path.name == Path(answer.provenance.model).name
    measured = path if has_name or mismatch.is_model(answer, path) else None
    doubt = _doubt(answer, script, measured, arguments)
    allow = flags["allow_numerics"] or (not doubt and answer.judged_numerics)
    known = () if measured is None else _known_maps(answer, flags["maps"], allow or not doubt)
    maps = [flag_from(text) for text in (*flags["maps"], *known)]
    rates = [one.text for one in maps if one.knob == LEARNING_RATE]
    faults = [f"--map {text}: best.yaml names the flag. Leave it out." for text in rates]
    if faults := [*faults, *check_files(maps, arguments)]:
        raise UsageError("\n".join(faults))
    plan = _planned(answer, maps, allow, is_measured=measured is not None)
    config = TrainingConfig.of(plan.settings)
    common.tell_mismatches(best, measured, flags["strict"], flags["nproc_per_node"])
    if flags["strict"] and plan.withheld:
        lines = [f"{setting}: {reason}." for setting, reason in plan.withheld.items()]
        raise UsageError("\n".join([*lines, "Map them with --map, or leave out --strict."]))
    for line in _start_lines(plan, maps, answer.maps, arguments, "" if allow else doubt):
        common.say(line)
    carried = with_flags(arguments, maps, config)
    carried = carried if measured is None else _with_rate(answer, plan, carried)
    words = [*(["-m"] if as_module else []), script, *carried]
    # -P: files in the current directory must not shadow modules of autotune.
    program = [sys.executable, "-P", "-c", _START, plan.to_json(), *words]
    if (processes := flags["nproc_per_node"]) is not None:
        launched = ["--standalone", "--nproc-per-node", str(processes), "--no-python", *program]
        program = [sys.executable, "-m", "torch.distributed.run", *launched]
    environment = {**environ_of(config), **variables_of(maps, config.every())}
    environment |= _compiled_code(answer, plan)
    if flags["print_command"] and flags["json"]:
        told = {"environment": environment, "command": program, "not_applied": plan.withheld}
        click.echo(json_text(told))
        return
    if flags["print_command"]:
        settings = [f"{name}={value}" for name, value in environment.items()]
        click.echo(shlex.join([*(["env", *settings] if settings else []), *program]))
        return
    sys.stdout.flush()
    sys.stderr.flush()
    # The program takes the place of this process: it keeps PID, terminal, signals and exit code.
    os.execve(program[0], program, {**os.environ, **environment})  # noqa: S606 - no shell is meant


def _start_lines(
    plan: Plan,
    maps: Sequence[Flag],
    measured: Sequence[str],
    arguments: Sequence[str],
    doubt: str,
) -> Iterator[str]:
    """Yield lines on the settings to apply, except PyTorch's defaults that were measured too.

    `measured` are the maps that the search measured, `doubt` is from `_doubt`.
    """
    if doubt and plan.withheld:
        more = any(_ALLOW in reason for reason in plan.withheld.values())
        others = f" ({_ALLOW} applies the others)" if more else ""
        flags = plan.by_flag.items()
        named = [f"{name} by {way}" for name, way in flags if knob_named(name).effect != "exact"]
        kept = f" and {', '.join(named)}" if named else ""
        yield f"{doubt}: applying only settings that preserve results{kept}{others}"
    told = [plan.replacing(name) for name in plan.told]
    for flag in maps:
        value = plan.settings.get(flag.knob)
        if flag.knob not in plan.by_flag or not flag.carries(value):
            continue
        line = f"{plan.setting(flag.knob)} by {flag.name}"
        if flag.text not in measured and knob_named(flag.knob).effect != "exact":
            line += " (which the search did not measure)"
        typed = flag.given(arguments)
        if typed is not None and typed != spelled(value):
            line += f" instead of your {typed}"
        told.append(line)
    if told:
        yield f"applying: {', '.join(told)}"
    for reason, settings in by_reason(plan.withheld).items():
        yield f"not applying: {', '.join(settings)} ({reason})"


def _compiled_code(answer: BestConfig, plan: Plan) -> dict[str, str]:
    """Return the variable by which torch finds what the search compiled; say whether it does."""
    if not plan.settings.get("compile_mode") or _CACHE in os.environ:
        return {}
    folder = common.study_folder(answer.provenance.study) / common.COMPILED
    same_torch = answer.machine.torch.partition("+")[0] == (torch_version() or "").partition("+")[0]
    if not (same_torch and folder.is_dir() and any(folder.iterdir())):
        why = "is not here" if same_torch else f"is for torch {answer.machine.torch}"
        common.say(f"compiling again: the code that the search compiled ({folder}) {why}")
        return {}
    common.say(f"looking for compiled code in {folder}")
    return {_CACHE: str(folder.resolve())}


def _with_rate(answer: BestConfig, plan: Plan, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments with the learning rate of the new batch, if they carry that batch."""
    rate = answer.lr_scaling
    if rate.factor == 1 or rate.flag is None or plan.by_flag.keys().isdisjoint(BATCH_KNOBS):
        return arguments
    flag = Flag(LEARNING_RATE, rate.flag)
    scaled = RateFlag(flag, rate.value or 0.0).scaled(arguments, rate.factor)
    common.say(f"applying: learning rate {flag.given(scaled)} by {rate.flag}")
    return scaled


def _doubt(answer: BestConfig, script: str, measured: Path | None, arguments: Sequence[str]) -> str:
    """Return why the file's evidence may not hold for this training; empty if it does."""
    if measured is None:
        made_for = Path(answer.provenance.model).name
        return f"the settings are for {made_for}, not for {script}"
    changed = mismatch.changed_files(answer, measured)
    doubts = [f"{file} has changed since the search" for file in changed]
    doubts += [
        f"{name}={spelled(now)} was edited; {spelled(measured)} was measured"
        for name, (measured, now) in answer.edits.items()
        if answer.effect(name) != "exact"
    ]
    others = mismatch.other_arguments(answer, arguments)
    if others is not None:
        named = ", ".join(name or "a positional argument" for name in others)
        doubts.append(f"{script} was measured with other arguments{named and f' ({named})'}")
    return ", and ".join(doubts)


def _planned(answer: BestConfig, maps: Sequence[Flag], allow: bool, *, is_measured: bool) -> Plan:
    """Return what to apply to a script; the user's own flags go only to the measured script."""
    config, own = answer.training_config, answer.evidence.baseline.config
    foreign = {} if is_measured else {flag.knob: None for flag in own_flags(config)}
    plan = plan_run(config.replace(**foreign), own, maps, allow, answer.effects or {})
    if not is_measured:  # what this script sets itself is not known
        plan = replace(plan, own={})
    plan.withheld.update(dict.fromkeys(foreign, "a flag of another script"))
    for flag in map(flag_from, answer.maps):
        setting = f"{flag.knob}={spelled(config[flag.knob])}"
        if setting in plan.withheld:
            way = f"needs {_ALLOW}" if is_measured else f"needs --map {flag.text}"
            plan.withheld[setting] = way
    if (factor := answer.lr_scaling.factor) != 1 and answer.lr_scaling.flag is None:
        plan.withheld[f"learning rate x {factor:g}"] = "the script sets it: multiply it there"
    return plan


def _found(script: str, as_module: bool) -> tuple[str, Path]:
    """Return a path or a module's name to run, and its file."""
    if as_module:
        return script, module_file(script)
    path = Path(script)
    if not path.exists():
        command = console_command(script)
        if not command:
            raise UsageError(f"{script} does not exist. Name a script, or a module with -m.")
        return str(command), Path(command)
    if path.is_dir() or not os.access(path, os.R_OK):
        raise UsageError(f"{script} is not a readable Python file.")
    return script, path


def _known_maps(answer: BestConfig, given: Sequence[str], has_evidence: bool) -> list[str]:
    """Return the maps of the search that none of `given` replaces; without evidence exact ones."""
    replaced = {text.partition("=")[0] for text in given}
    known = [text for text in answer.maps if text.partition("=")[0] not in replaced]
    return [t for t in known if has_evidence or KNOBS[flag_from(t).knob].effect == "exact"]
