"""A training script that nobody changed: how it is called, and how each setting reaches it.

Three ways, from harmless to not at all. What leaves the arithmetic alone (the DataLoader's
arguments, threads, cuDNN's search) is put into force beside the script. What changes it needs leave
(`--allow numerics`). What changes the course of training, batch size and float16, takes the
script's own flags or does not happen: schedules, epochs and scalers count on it.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from autotune.config import TrainingConfig
from autotune.errors import UsageError
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob, Value, spelled
from autotune.suggest import did_you_mean

# Picks among algorithms that PyTorch itself holds to be the same, and anything else would too.
_HARMLESS = ("cudnn_benchmark",)
_SCALED = "float16"
_MODEL_PARTS = frozenset({"build_model", "build_dataset", "compute_loss"})


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of the script's own that carries a setting."""

    knob: str
    name: str
    """As the script spells it: "--batch-size"."""
    only: str | None = None
    """A switch, which stands alone and only where the knob has this value."""

    def carries(self, value: Value) -> bool:
        """Whether `value` is passed by this flag: a switch has one value, and null has no word."""
        return value is not None if self.only is None else spelled(value) == self.only

    def put(self, arguments: Sequence[str], value: Value) -> list[str]:
        """The arguments with the flag set to `value`, or added at their end."""
        if self.only is not None:
            others = [word for word in arguments if word != self.name]
            return [*others, self.name] if self.carries(value) else others
        return self._valued(list(arguments), spelled(value))

    def _valued(self, words: list[str], value: str) -> list[str]:
        found = False
        for place, word in enumerate(words):
            if word == self.name and place + 1 < len(words):
                words[place + 1], found = value, True
            elif word.startswith(f"{self.name}="):
                words[place], found = f"{self.name}={value}", True
        return words if found else [*words, self.name, value]


@dataclass(frozen=True, slots=True)
class Script:
    """How a child process calls a script, and what it may change."""

    arguments: tuple[str, ...]
    asked: tuple[str, ...] = ()
    """Knobs to put into force; the others are the script's own affair."""
    metric: str | None = None
    """A regular expression that finds the quality in what the script prints, in its first group."""
    by_flag: tuple[str, ...] = ()
    """Knobs that `arguments` carry, to be read back: a script may do otherwise than it is told."""


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """What a person asked for who has a script tuned."""

    arguments: tuple[str, ...]
    flags: tuple[Flag, ...] = ()
    allow_numerics: bool = False
    metric: str | None = None
    """A regular expression; without one, nothing is tried that could change what is trained."""
    higher_is_better: bool = True

    def call(self, config: TrainingConfig | None = None, asked: tuple[str, ...] = ()) -> Script:
        """The script under a configuration, or as it is."""
        if config is None:
            return Script(self.arguments, asked, self.metric)
        by_flag = tuple(flag.knob for flag in self.flags if flag.carries(config[flag.knob]))
        return Script(with_flags(self.arguments, self.flags, config), asked, self.metric, by_flag)

    @property
    def identity(self) -> dict[str, object]:
        """What must not change while a study goes on; arguments may hold secrets."""
        arguments = json.dumps([self.arguments, [asdict(flag) for flag in self.flags]])
        return {
            "arguments_sha256": hashlib.sha256(arguments.encode()).hexdigest(),
            "allow_numerics": self.allow_numerics,
            "metric": [self.metric, self.higher_is_better],
        }

    def reaches(self, knob: Knob) -> bool:
        """Whether there is a way for a knob's settings to reach the script in a search."""
        if knob.name == "batch_size" or knob.name in {flag.knob for flag in self.flags}:
            return knob.name in {flag.knob for flag in self.flags}
        return is_harmless(knob) or self.allow_numerics


@dataclass(frozen=True, slots=True)
class Plan:
    """What `autotune run` does beside a script, as its process is told it."""

    settings: dict[str, Value]
    """A complete configuration; what may not be put into force has PyTorch's default."""
    asked: tuple[str, ...] = ()
    """Knobs to put into force."""
    by_flag: dict[str, str] = field(default_factory=dict)
    """Knobs that the script is told by a flag of its own, and the flag."""
    withheld: dict[str, str] = field(default_factory=dict)
    """Settings that cannot be put into force, and why."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """What `to_json` wrote."""
        return cls(**json.loads(text))


def is_script(source: bytes) -> bool:
    """Whether a file is a script, read off its source: it has no part of a model.py in it.

    What cannot be parsed is no script, so that it is reported as a model.py would be.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return not any(_bound_by(statement) & _MODEL_PARTS for statement in tree.body)


def _bound_by(statement: ast.stmt) -> set[str]:
    """Names that a statement of the top level gives a meaning to, as far as they can be told."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.ImportFrom(names=names):
            bound = {alias.asname or alias.name for alias in names}
            return set(_MODEL_PARTS) if "*" in bound else bound
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case _:
            return set()


def flag_from(text: str) -> Flag:
    """A flag from "batch_size=--batch-size", or a switch from "amp_dtype:float16=--fp16".

    Raises:
        UsageError: it is neither, or names no knob.
    """
    left, equals, name = text.partition("=")
    knob, colon, only = left.partition(":")
    if not equals or not name.startswith("-"):
        raise UsageError(f"--map {text!r} is no pair; write batch_size=--batch-size.")
    if knob not in KNOBS:
        raise UsageError(f"--map {text!r}: unknown knob {knob!r}.{did_you_mean(knob, KNOBS)}")
    return Flag(knob, name, only if colon else None)


def with_flags(
    arguments: Sequence[str], flags: Sequence[Flag], config: TrainingConfig
) -> tuple[str, ...]:
    """The arguments with every mapped setting in them; what follows `--` stays as it is."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = list(arguments[:end])
    for flag in flags:
        if flag.only is not None or flag.carries(config[flag.knob]):
            words = flag.put(words, config[flag.knob])
    return (*words, *arguments[end:])


def is_harmless(knob: Knob) -> bool:
    """Whether a knob leaves the arithmetic alone, so that it needs neither leave nor proof."""
    return knob.effect == "exact" or knob.name in _HARMLESS


def plan_run(
    config: TrainingConfig,
    baseline: Mapping[str, Value],
    flags: Sequence[Flag],
    allow_numerics: bool,
) -> Plan:
    """Which settings of `config` reach a script by which way; `baseline` is what it ran with."""
    mapped = {flag.knob: flag.name for flag in flags if flag.carries(config[flag.knob])}
    asked, withheld = [], {}
    for knob in ALL_KNOBS:
        value, own = config[knob.name], baseline.get(knob.name, knob.default)
        if knob.name in mapped:
            continue
        if knob.name == "batch_size":
            if value != baseline.get(knob.name, value):
                withheld[f"{knob.name}={value}"] = f"needs --map {knob.name}=--FLAG"
            continue
        # PyTorch's default is a setting, too, where the script was found with another one.
        means_something = not value == own == knob.default
        if is_harmless(knob) or (means_something and allow_numerics and value != _SCALED):
            asked.append(knob.name)
        elif value != own:
            withheld[f"{knob.name}={spelled(value)}"] = _obstacle(knob, value)
    left_alone = {
        knob.name: knob.default
        for knob in ALL_KNOBS
        if not is_harmless(knob) and knob.name not in (*asked, *mapped, "batch_size")
    }
    return Plan(
        settings=config.replace(**left_alone).as_dict(),
        asked=tuple(asked),
        by_flag=mapped,
        withheld=withheld,
    )


def _obstacle(knob: Knob, value: Value) -> str:
    if value == _SCALED:
        return f"needs the script's own scaler: --map {knob.name}:{value}=--FLAG"
    return "needs --allow numerics"
