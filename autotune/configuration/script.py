"""Call an unchanged training script, with each setting applied in the way that it allows.

* Settings that keep the arithmetic (DataLoader arguments, threads, cuDNN's search) are applied
  beside the script.
* Settings that change the arithmetic need permission: `--allow numerics`.
* Batch size, gradient accumulation and float16 change the course of training, which schedules,
  epochs and scalers rely on. Only the script's own flags apply them (`--map`).
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType

from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Effect, Knob, Value, spelled
from autotune.knobs.older_names import RENAMED
from autotune.values.errors import UsageError
from autotune.values.text import did_you_mean

# They pick among algorithms that PyTorch treats as equivalent.
_HARMLESS = ("cudnn_benchmark", "deterministic")
BY_FLAG_ALONE = ("batch_size", "in_order", "device_prefetch")
"""Knobs that change the course of training, or that only the script's own loop can follow."""
_SCALED = "float16"
_NONE: Mapping[str, Effect] = MappingProxyType({})
_MODEL_PARTS = frozenset({"build_model", "build_dataset", "compute_loss"})


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of the script that carries a setting."""

    knob: str
    name: str
    """Name as the script spells it: "--batch-size"."""
    only: str | None = None
    """Value of the knob for which a switch is given; None: the flag takes a value."""

    def carries(self, value: Value) -> bool:
        """Return True if this flag can pass `value`: a switch has one value, null has none."""
        return value is not None if self.only is None else spelled(value) == self.only

    def put(self, arguments: Sequence[str], value: Value) -> list[str]:
        """Return the arguments with the flag set to `value`, or added at their end."""
        if self.only is not None:
            others = [word for word in arguments if word != self.name]
            return [*others, self.name] if self.carries(value) else others
        return self._valued(list(arguments), spelled(value))

    @property
    def _is_dashed(self) -> bool:
        """True for `--name VALUE`; False for `name=VALUE`."""
        return self.name.startswith("-")

    def _valued(self, words: list[str], value: str) -> list[str]:
        found = False
        for place, word in enumerate(words):
            if word == self.name and self._is_dashed and place + 1 < len(words):
                words[place + 1], found = value, True
            elif word.startswith(f"{self.name}="):
                words[place], found = f"{self.name}={value}", True
        if found:
            return words
        return [*words, *([self.name, value] if self._is_dashed else [f"{self.name}={value}"])]

    def given(self, arguments: Sequence[str]) -> str | None:
        """Return the value that the arguments give the flag, the last one; None if none do."""
        found = None
        for word, after in zip(arguments, (*arguments[1:], None), strict=True):
            if word == "--":
                break
            if word.startswith(f"{self.name}="):
                found = word.removeprefix(f"{self.name}=")
            elif word == self.name and self._is_dashed and after is not None:
                found = after
        return found


@dataclass(frozen=True, slots=True)
class Script:
    """Call of a script by a child process."""

    arguments: tuple[str, ...]
    asked: tuple[str, ...] = ()
    """Knobs to apply; the others are left to the script."""
    metric: str | None = None
    """Regular expression whose first group finds the quality in the script's output."""
    by_flag: tuple[str, ...] = ()
    """Knobs that `arguments` carry. They are read back, because a script may ignore its flags."""


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """Options of a search of a script."""

    arguments: tuple[str, ...]
    flags: tuple[Flag, ...] = ()
    allow_numerics: bool = False
    metric: str | None = None
    """Regular expression for the quality; None: only settings that keep the result are tried."""
    higher_is_better: bool = True

    def call(self, config: TrainingConfig | None = None, asked: tuple[str, ...] = ()) -> Script:
        """Return the call of the script under a configuration, or unchanged without one."""
        if config is None:
            return Script(self.arguments, asked, self.metric)
        by_flag = tuple(flag.knob for flag in self.flags if flag.carries(config[flag.knob]))
        variables = (f"env.{name}" for name in config.of_kind("env"))
        words = with_flags(self.arguments, self.flags, config)
        return Script(words, (*asked, *variables), self.metric, by_flag)

    @property
    def identity(self) -> dict[str, object]:
        """Return facts that must stay the same for a study to be continued.

        Arguments are hashed, because they may hold secrets.
        """
        arguments = json.dumps([self.arguments, [asdict(flag) for flag in self.flags]])
        return {
            "arguments_sha256": hashlib.sha256(arguments.encode()).hexdigest(),
            "allow_numerics": self.allow_numerics,
            "metric": [self.metric, self.higher_is_better],
        }

    def reaches(self, knob: Knob) -> bool:
        """Return True if a search can apply the knob to the script."""
        if knob.name in BY_FLAG_ALONE or knob.name in {flag.knob for flag in self.flags}:
            return knob.name in {flag.knob for flag in self.flags}
        return not knob.script_obstacle and (is_harmless(knob) or self.allow_numerics)


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings that `autotune run` applies to a script, as passed to the script's process."""

    settings: dict[str, Value]
    """A complete configuration; knobs that may not be applied have PyTorch's default."""
    asked: tuple[str, ...] = ()
    """Knobs to apply beside the script."""
    by_flag: dict[str, str] = field(default_factory=dict)
    """Knobs that a flag of the script carries, each with the flag."""
    withheld: dict[str, str] = field(default_factory=dict)
    """Settings that cannot be applied, each with what it needs."""

    def to_json(self) -> str:
        """Return the plan as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read back the output of `to_json`."""
        return cls(**json.loads(text))


def is_script(source: bytes) -> bool:
    """Return True if a source defines no part of a model.py.

    A file that cannot be parsed counts as a model.py, so that its error is reported as usual.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return not any(_bound_by(statement) & _MODEL_PARTS for statement in tree.body)


def _bound_by(statement: ast.stmt) -> set[str]:
    """Return the names that a top-level statement binds, as far as its form shows them."""
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
    """Parse a flag such as "batch_size=--batch-size", or a switch, "amp_dtype:float16=--fp16".

    Raises:
        UsageError: the text is neither, or names no knob.
    """
    left, equals, name = text.partition("=")
    knob, colon, only = left.partition(":")
    if not equals or not name.startswith("-"):
        raise UsageError(f"--map {text!r} is no pair; write batch_size=--batch-size.")
    if knob in RENAMED:
        now = RENAMED[knob]
        if not colon:
            raise UsageError(
                f"--map {text!r}: {knob} is called {now.name} now; map its values one by one, as "
                f"in {now.name}:VALUE={name}."
            )
        knob, only = now.name, spelled(now.values.get(only, only))
    if knob not in KNOBS:
        raise UsageError(f"--map {text!r}: unknown knob {knob!r}.{did_you_mean(knob, KNOBS)}")
    return Flag(knob, name, only if colon else None)


def with_flags(
    arguments: Sequence[str], flags: Sequence[Flag], config: TrainingConfig
) -> tuple[str, ...]:
    """Return the arguments with every mapped setting and the user's own flags.

    Arguments after `--` stay unchanged.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = list(arguments[:end])
    for flag in (*flags, *own_flags(config)):
        if flag.only is not None or flag.carries(config[flag.knob]):
            words = flag.put(words, config[flag.knob])
    return (*words, *arguments[end:])


def own_flags(config: TrainingConfig) -> tuple[Flag, ...]:
    """Return the flags among the user's own knobs; true and false switch `--name` on and off."""
    return tuple(
        Flag(f"flags.{name}", name, "true" if is_switch(name, (value,)) else None)
        for name, value in config.of_kind("flags").items()
    )


def is_switch(name: str, values: Sequence[Value]) -> bool:
    """Return True if the flag takes no value: it has a dash and its values are true and false."""
    return name.startswith("-") and any(isinstance(value, bool) for value in values)


def is_harmless(knob: Knob) -> bool:
    """Return True if a knob keeps the arithmetic, so that it needs no permission and no check."""
    return knob.effect == "exact" or knob.name in _HARMLESS


def plan_run(
    config: TrainingConfig,
    baseline: Mapping[str, Value],
    flags: Sequence[Flag],
    allow_numerics: bool,
    effects: Mapping[str, Effect] = _NONE,
) -> Plan:
    """Plan how each setting of `config` reaches a script.

    Args:
        config: the settings to apply.
        baseline: settings of the script when it was measured unchanged.
        flags: flags of the script that carry settings.
        allow_numerics: permit settings that change the arithmetic.
        effects: effects of the user's own knobs; numerics where none is given.
    """
    mapped = {flag.knob: flag.name for flag in flags if flag.carries(config[flag.knob])}
    asked, withheld = [], {}
    for knob in ALL_KNOBS:
        value, own = config[knob.name], baseline.get(knob.name, knob.default)
        if knob.name in mapped:
            continue
        if knob.name in BY_FLAG_ALONE:
            if value != baseline.get(knob.name, value):
                withheld[f"{knob.name}={spelled(value)}"] = f"needs --map {knob.name}=--FLAG"
            continue
        # PyTorch's default is asked for as well if the script used another value.
        means_something = not value == own == knob.default
        allowed = allow_numerics and value != _SCALED and not knob.script_obstacle
        if is_harmless(knob) or (means_something and allowed):
            asked.append(knob.name)
        elif value != own:
            withheld[f"{knob.name}={spelled(value)}"] = _obstacle(knob, value)
    left_alone = {
        knob.name: knob.default
        for knob in ALL_KNOBS
        if not is_harmless(knob) and knob.name not in (*asked, *mapped, *BATCH_KNOBS)
    }
    for name, value in config.own:
        is_allowed = allow_numerics or value == baseline.get(name) or effects.get(name) == "exact"
        if obstacle := _own_obstacle(name, is_allowed):
            withheld[f"{name}={spelled(value)}"], left_alone[name] = obstacle, None
        elif name.startswith("env."):
            asked.append(name)
        else:
            mapped[name] = name.removeprefix("flags.")
    settings = config.replace(**left_alone).as_dict()
    return Plan(settings, asked=tuple(asked), by_flag=mapped, withheld=withheld)


def _own_obstacle(name: str, is_allowed: bool) -> str | None:
    """Return why a knob of the user's own cannot be applied to a script, or None."""
    if not name.startswith(("env.", "flags.")):
        return "only a program that calls build_model or build_dataset can pass it: autotune.load"
    return None if is_allowed else "it may change the trained model: needs --allow numerics"


def _obstacle(knob: Knob, value: Value) -> str:
    if knob.script_obstacle:
        return knob.script_obstacle
    if value == _SCALED:
        return f"needs the script's own scaler: --map {knob.name}:{value}=--FLAG"
    return "needs --allow numerics"
