"""The command line: flags in, exit codes out. Everything heavy is imported inside the commands."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autotune.errors import AutotuneError, UsageError
from autotune.flags import Duration, SettingsType, Share, Size, ToleranceType, folder_name
from autotune.text import clean
from autotune.version import __version__

if TYPE_CHECKING:
    from autotune.outcome import Inspected
    from autotune.tuning.scene import SearchOptions

_NOTHING_FEASIBLE = 3
_NOT_FASTER = 8
_INTERRUPTED, _TERMINATED = 130, 143
# Flags that only a search has.
_SHORT = dict.fromkeys(("time_budget", "memory_limit"))


def main() -> None:
    """Run a command; what goes wrong becomes a message and an exit code."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except AutotuneError as error:
        click.echo(clean(f"autotune: {error}"), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(AutotuneError.exit_code)
    except Exception as error:
        _report_bug(error)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="autotune")
def cli() -> None:
    """Find the settings under which a PyTorch model trains fastest on this machine."""


@cli.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("model.py"))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(path: Path, force: bool) -> None:
    """Write a commented model.py to start from."""
    if path.exists() and not force:
        raise UsageError(f"{path} exists already. Choose another name, or overwrite with --force.")
    template = Path(__file__).with_name("model_template.py")
    try:
        path.write_text(template.read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    click.echo(f"Wrote {path}. Next: autotune search {path} --space quick", err=True)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--space", default="default", help="Name of a shipped search space, or a YAML file.")
@click.option(
    "--trials", type=click.IntRange(min=1), help="In total, over all runs; default: the space's."
)
@click.option(
    "--time-budget",
    type=Duration(),
    help="Such as 90s, 10m or 1h: no trial starts that would leave no time to confirm.",
)
@click.option("--study", help="Name of the study; default: from the model's path.")
@click.option(
    "--storage", help="Any storage URL that Optuna takes; default: SQLite in the study's folder."
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Default: best.yaml in the study's folder."
)
@click.option("--device", default="auto", help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--objective",
    type=click.Choice(["throughput", "run_time"]),
    default="throughput",
    help="Of the steady state, or the time of a run: --run-samples and --run-epochs imply that.",
)
@click.option(
    "--run-samples",
    type=click.IntRange(min=1),
    help="Find what trains so many samples soonest, start and compilation included.",
)
@click.option("--run-epochs", type=click.IntRange(min=1), help="The same in epochs.")
@click.option(
    "--memory-headroom", type=Share(), default="8%", help="Share of memory to leave free."
)
@click.option("--memory-limit", type=Size(), help="Such as 2GiB; default: all but the headroom.")
@click.option(
    "--accuracy-tolerance",
    type=ToleranceType(),
    default="1%",
    help="Share of the baseline (1%), or absolute (0.01).",
)
@click.option("--min-accuracy", type=float, help="A floor for evaluate().")
@click.option(
    "--accuracy-samples",
    type=click.IntRange(min=1),
    help="Samples that each accuracy probe trains on; default: 6 s of your settings.",
)
@click.option(
    "--lr-scaling",
    type=click.Choice(["none", "linear", "sqrt"]),
    default="none",
    help="Learning rate with the batch size: linear for SGD (at most 8x), sqrt for Adam.",
)
@click.option(
    "--baseline", type=SettingsType(), default={}, help="Over BASELINE: batch_size=64,num_workers=2"
)
@click.option(
    "--trial-timeout", type=Duration(), default="10m", help="The longest that one process may take."
)
@click.option(
    "--warm-start",
    metavar="STUDY|BEST.yaml",
    help="Try first what was best in an earlier search, of another machine or model.",
)
@click.option(
    "--sampler",
    type=click.Choice(["auto", "tpe", "gp", "random", "qmc", "nsga2", "grid"]),
    default="auto",
    help="Who proposes; auto is described in docs/search.md, the others are Optuna's.",
)
@click.option("--seed", type=int, default=0)
@click.option(
    "--dry-run", is_flag=True, help="Show space, plan and estimated time; measure nothing."
)
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON on stdout.")
@click.option("--progress", type=click.Choice(["auto", "plain", "none"]), default="auto")
def search(dry_run: bool, as_json: bool, progress: str, **flags: Any) -> None:
    """Create or continue a study of MODEL, and write best.yaml."""
    from autotune.drive import drive_search, show_plan

    options = _options(**flags)
    signal.signal(signal.SIGTERM, _terminate)
    if dry_run:
        show_plan(options)
        return
    found = drive_search(options, quiet=progress == "none", as_json=as_json)
    sys.exit(0 if found else _NOTHING_FEASIBLE)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--space", default="default", help="Name of a shipped search space, or a YAML file.")
@click.option("--device", default="auto", help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--baseline", type=SettingsType(), default={}, help="Over BASELINE: batch_size=64,num_workers=2"
)
@click.option("--trace", type=click.Path(path_type=Path), help="Write a Chrome trace there.")
def profile(model: Path, trace: Path | None, **flags: Any) -> None:
    """Say what bounds MODEL's training, what cannot matter, and which operators take the time."""
    from autotune.drive import drive_profile

    signal.signal(signal.SIGTERM, _terminate)
    drive_profile(_options(model, None, None, None, **_SHORT, **flags), trace)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--space", default="default", help="Name of a shipped search space, or a YAML file.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Such as table.jsonl.")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes for each configuration.",
)
@click.option("--device", default="auto", help="auto, cpu, cuda or cuda:N.")
@click.option("--seed", type=int, default=0, help="Of the order.")
def record(model: Path, out: Path, repeats: int, **flags: Any) -> None:
    """Measure every configuration of a space into a table for replays; continues it."""
    from autotune.drive import drive_recording

    if out.suffix != ".jsonl":
        raise UsageError(f"--out {out} must end in .jsonl; pack it with xz when it is complete.")
    options = _options(model, None, None, out, **_SHORT, **flags)
    signal.signal(signal.SIGTERM, _terminate)
    drive_recording(options, repeats)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path), required=False)
@click.option(
    "--rounds",
    type=click.IntRange(min=6),
    default=9,
    show_default=True,
    help="Each times both once; six are the fewest that give a 95 % interval.",
)
@click.option("--device", default="auto", help="auto, cpu, cuda or cuda:N.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@click.option("--require-faster", is_flag=True, help="Exit with 8 unless A is confirmed faster.")
def compare(model: Path, as_json: bool, require_faster: bool, **flags: Any) -> None:
    """Time the settings of A against those of B, or of MODEL itself, in turns."""
    from autotune.drive import drive_comparison
    from autotune.tuning.compare import ComparisonOptions, side_of

    _check_model(model)
    a, b = (side_of(flags.pop(name)) for name in ("a", "b"))
    signal.signal(signal.SIGTERM, _terminate)
    faster = drive_comparison(ComparisonOptions(model, a, b, **flags), as_json)
    sys.exit(_NOT_FASTER if require_faster and not faster else 0)


@cli.command()
@click.argument("best", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["env", "json", "python"]), required=True)
@click.option("--strict", is_flag=True, help="Fail where the format cannot carry every setting.")
def export(best: Path, form: str, strict: bool) -> None:
    """Print the settings of BEST in a form that other tools read."""
    from autotune.best import read_best
    from autotune.export import export as exported_as

    exported = exported_as(read_best(best), form)
    if exported.dropped:
        message = f"--format {form} cannot carry {', '.join(exported.dropped)}"
        if strict:
            raise UsageError(f"{message}. Choose another --format, or go without --strict.")
        click.echo(f"autotune: {message}", err=True)
    click.echo(exported.text, nl=False)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option("--device", default="auto", help="auto, cpu, cuda or cuda:N.")
def knobs(model: Path | None, device: str) -> None:
    """List what can be tuned here, or why not; with MODEL also what it cannot use."""
    from autotune.tables import show_knobs

    inspected = _inspect(device, model)
    show_knobs(inspected.machine, inspected.workload)


@cli.command()
def spaces() -> None:
    """List the shipped search spaces."""
    from autotune.tables import show_spaces

    show_spaces()


@cli.command()
@click.option("--device", default="auto", help="auto, cpu, cuda or cuda:N.")
def doctor(device: str) -> None:
    """Say what this machine is and allows."""
    from autotune.tables import show_machine

    show_machine(_inspect(device, None).machine)


def _inspect(device: str, model: Path | None) -> Inspected:
    from autotune.drive import inspect_once

    if model is not None:
        _check_model(model)
    return inspect_once(device, model)


def _options(
    model: Path, study: str | None, storage: str | None, out: Path | None, **flags: Any
) -> SearchOptions:
    from autotune.tuning.scene import SearchOptions
    from autotune.tuning.warm_start import seeds_from

    _check_model(model)
    warm_start = flags.pop("warm_start", None)
    if out is not None and out.is_dir():
        raise UsageError(f"--out {out} is a folder. Name a file, such as {out / 'best.yaml'}.")
    study = study or (model.resolve().parent.name if model.stem == "model" else model.stem)
    folder = Path("studies") / folder_name(study)
    return SearchOptions(
        model_path=model,
        study=study,
        storage=storage or f"sqlite:///{folder / 'study.db'}",
        folder=folder,
        out=out or folder / "best.yaml",
        time_budget_seconds=flags.pop("time_budget"),
        memory_limit_bytes=flags.pop("memory_limit"),
        trial_timeout_seconds=flags.pop("trial_timeout", 600.0),
        warm_start=seeds_from(warm_start) if warm_start else (),
        **flags,
    )


def _check_model(model: Path) -> None:
    if not model.exists():
        raise UsageError(f"{model} does not exist. `autotune init {model}` writes a template.")
    if model.is_dir() or model.suffix != ".py":
        raise UsageError(f"{model} is not a Python file. Name the model.py with your functions.")


def _terminate(*_: object) -> NoReturn:
    """SIGTERM unwinds like an exception, so that the running child is killed on the way out."""
    sys.exit(_TERMINATED)


def _report_bug(error: Exception) -> NoReturn:
    handle, name = tempfile.mkstemp(prefix="autotune-crash-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    click.echo(
        f"autotune: a fault of autotune itself: {type(error).__name__}: {error}\n"
        f"The details are in {name}; please report them.",
        err=True,
    )
    sys.exit(AutotuneError.exit_code)
