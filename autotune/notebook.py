"""A search from Python: the command line's flags as keywords, the result as an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.production import Best
from autotune.values.errors import UsageError
from autotune.values.text import did_you_mean

if TYPE_CHECKING:
    import click
    import optuna

    from autotune.context.options import SearchOptions
    from autotune.process.devices import Device
    from autotune.searching.run.events import Answered, NothingFeasible

# Parameters of the command that are no keywords here.
_ELSEWHERE = ("model", "dry_run", "as_json", "new_study", "front", "quiet")


@dataclass(frozen=True, repr=False)
class SearchResult:
    """Result of a search."""

    best: Best | None
    """The settings found, as `autotune.load` gives them; None if nothing was feasible."""
    path: Path | None
    """Path of best.yaml; None if nothing was feasible."""
    study: optuna.Study
    """The study with every trial, for Optuna's plots, tools and `trials_dataframe()`."""
    reasons: Mapping[str, int]
    """Reasons why nothing was feasible, each with its count; empty if something was."""

    def headline(self) -> str:
        """Return the result in a few lines."""
        if self.best is not None:
            return self.best.explain()
        return "nothing feasible: " + ", ".join(f"{n} x {why}" for why, n in self.reasons.items())

    def __repr__(self) -> str:
        first = self.headline().splitlines()[0]
        where = "" if self.path is None else f"; {self.path}"
        return f"<SearchResult: {first}; study {self.study.study_name!r}{where}>"


def run_search(model: str | Path, flags: Mapping[str, Any]) -> SearchResult:
    """Run a search to its end.

    Raises:
        AutotuneError: see `autotune.search`.
    """
    from autotune.commands.search import run_search as run
    from autotune.console.lines import answer_lines
    from autotune.console.progress import to_stderr

    given = dict(flags)
    arguments = given.pop("arguments", None)
    values = values_of(model, given)
    progress = values.pop("progress")
    options, devices = _options(values, arguments)
    end = run(options, progress, devices)
    if progress != "none":
        to_stderr("\n".join(answer_lines(end)))  # stdout is the caller's
    return result_of(options, end)


def result_of(options: SearchOptions, end: Answered | NothingFeasible) -> SearchResult:
    """Return the result of a search with these options, from its last event."""
    import optuna

    from autotune.searching.run.events import Answered
    from autotune.study.storage import existing

    assert options.study.storage is not None, "keywords never give a study in memory"
    storage = existing(options.study.storage)
    study = optuna.load_study(study_name=options.study.name, storage=storage)
    if isinstance(end, Answered):
        return SearchResult(Best(end.best), end.path, study, {})
    return SearchResult(None, None, study, end.reasons)


def values_of(model: str | Path, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each flag of `autotune search`, checked as on the command line.

    Raises:
        UsageError: unknown keywords or illegal values, all named at once.
    """
    from autotune.commands.search import search as command

    # An absolute path keeps a name that begins with a dash from being read as a flag.
    path = model if not str(model).startswith("-") else Path(model).absolute()
    context = command.make_context("autotune.search", [str(path)])
    known = {p.name: p for p in command.params if p.name and p.name not in _ELSEWHERE}
    values, faults = dict(context.params), []
    for name in _ELSEWHERE[1:]:
        values.pop(name, None)
    for name, value in flags.items():
        if name not in known:
            faults.append(f"autotune.search has no keyword {name!r}.{did_you_mean(name, known)}")
        elif value is not None:
            try:
                values[name] = _converted(known[name], value, context)
            except UsageError as error:
                faults.append(str(error))
    if faults:
        raise UsageError("\n".join(faults))
    return values


def _converted(parameter: click.Parameter, value: Any, context: click.Context) -> Any:
    """Return the value that the flag would have on the command line."""
    import click
    from optuna.samplers import BaseSampler

    if parameter.name == "sampler" and isinstance(value, BaseSampler):
        return value
    # As text, because int() would turn 2.5 into 2.
    text = str(value) if isinstance(parameter.type, click.types.IntParamType) else value
    try:
        if isinstance(parameter, click.Option) and parameter.multiple:
            entries = [value] if isinstance(value, str) else list(value)
            return tuple(parameter.type.convert(entry, parameter, context) for entry in entries)
        return parameter.type.convert(text, parameter, context)
    except click.UsageError as error:
        raise UsageError(f"{parameter.name}={value!r}: {error.message}") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{parameter.name}={value!r}: {error}.") from None


def _options(
    values: dict[str, Any], arguments: Sequence[str] | None
) -> tuple[SearchOptions, tuple[Device, ...]]:
    from autotune.commands.search import search_options

    # The message shows no value, because arguments may hold secrets.
    words = () if arguments is None else arguments
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise UsageError(
            'arguments: give a list of strings, one for each argument, such as ["--epochs", "3"].'
        )
    return search_options(values, arguments)
