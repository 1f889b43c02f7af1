"""Call an unchanged training script, with each setting applied in the way that it allows.

* Settings that preserve results (DataLoader arguments, threads, cuDNN's search) are always applied.
* Settings that change rounding need a quality metric: the training loss, or a number that the
  script prints.
* Batch size, gradient accumulation and float16 change the course of training, which schedules,
  epochs and scalers rely on. Only the script's own flags apply them (`--map`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from pydantic import TypeAdapter

from autotune.calling.arguments import Edit, edits_of, files_digest
from autotune.calling.flag import BATCH_CALLS, Flag, calls_of, variables_of
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig
from autotune.knobs import ALL_KNOBS, knob_named
from autotune.knobs.base import Effect, Knob, Value, spelled
from autotune.values.errors import UsageError

# They pick among algorithms that PyTorch treats as equivalent.
_HARMLESS = ("cudnn_benchmark", "deterministic")
_SCALED = "float16"
_NONE: Mapping[str, Effect] = MappingProxyType({})
_NOTHING: Mapping[str, Value] = MappingProxyType({})
_AS_ASKED = "as --exact-only asks"
BY_FLAG_ONLY = ("batch_size", "accumulation_steps", "in_order")
"""Knobs that change the course of training, or that only the script's own loop can follow."""


@dataclass(frozen=True, slots=True)
class Keep:
    """A folder that gets copies of a script's files before a run changes or deletes them."""

    folder: str
    since: float
    """Time of the first run, on the clock of the file system. Files written since are not kept."""


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
    own: Mapping[str, Value] = field(default_factory=dict, hash=False)
    """Settings of the untouched script; what it sets itself gives way to other values."""
    module: str | None = None
    """Name of the module to run in place of the file, as `python -m` does."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables that carry settings."""
    edits: tuple[Edit, ...] = ()
    """Keys of config files that carry settings; the script gets changed copies of the files."""
    calls: tuple[tuple[str, Value], ...] = ()
    """Arguments of classes and functions, each with the value to pass; null leaves it alone."""
    workdir: str | None = None
    """Folder in which a job gets a folder of its own to run in; None: the current one. The runner
    replaces it by that folder."""
    keep: Keep | None = None
    """Place for files that the script would overwrite; the runner names it."""
    learning_rates: tuple[float, ...] = ()
    """Rate that each group of the optimizer must have in the first step; empty for any."""


@dataclass(frozen=True, slots=True)
class RateFlag:
    """The script's flag for its learning rate."""

    flag: Flag
    value: float = 0.0
    """Its value in the untouched script; 0 before that was observed."""
    rates: tuple[float, ...] = ()
    """Rate of each group of the optimizer there."""

    def scaled(self, arguments: Sequence[str], factor: float) -> tuple[str, ...]:
        """Return the arguments with `factor` times their learning rate, or the observed one.

        Raises:
            UsageError: their learning rate is no number.
        """
        given = self.flag.given(arguments) or self.value
        try:
            own = float(given)
        except ValueError:
            raise UsageError(
                f"{self.flag.name} {given}: the learning rate follows the batch (--lr-scaling), so "
                "it has to be a number. Give one, or use a result of a search without it."
            ) from None
        end = arguments.index("--") if "--" in arguments else len(arguments)
        return (*self.flag.put(arguments[:end], float(f"{factor * own:.9g}")), *arguments[end:])


Quality = Literal["evaluate", "held_out_loss", "training_loss", "metric_regex"]


@dataclass(frozen=True, slots=True)
class Judge:
    """The quality by which trainings of a workload are judged."""

    by: Quality | Literal["gradients", "nothing", "unneeded"]
    """Name of the quality. Where there is none, gradients may tell settings that only round; a
    command that keeps no trained model needs none."""
    higher_is_better: bool = False
    loss: Literal["mean", "sum"] | None = None
    """Loss of a step over its backward passes, if the training loss judges."""
    doubt: str = ""
    """Reason why the training loss cannot judge; empty if it can, or if it was not asked."""

    @property
    def has_quality(self) -> bool:
        """True if a training has a quality by which it is judged."""
        return self.by not in ("gradients", "nothing", "unneeded")

    @property
    def tries_numerics(self) -> bool:
        """True if settings that change rounding are tried."""
        return self.by not in ("gradients", "nothing")

    @property
    def needs_whole_runs(self) -> bool:
        """True if each seed needs a process of its own, which prints or shows its quality."""
        return self.by in ("training_loss", "metric_regex")

    @property
    def name_a_metric(self) -> str:
        """Reason why only settings that preserve results are tried; empty if others are too."""
        if not self.doubt:
            return ""
        if self.doubt == _AS_ASKED:
            return f"trying only settings that preserve results, {self.doubt}"
        gradients = " or gradients" if self.by == "gradients" else ""
        return (
            f"trying only settings that preserve results{gradients}; the training loss cannot "
            f"compare quality: {self.doubt}. Name a quality metric that the script prints with "
            "--metric-regex 'accuracy ([0-9.]+)'"
        )


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """Options for calling a training script and judging its quality."""

    arguments: tuple[str, ...]
    flags: tuple[Flag, ...] = ()
    preset: tuple[Flag, ...] = ()
    """Maps of a preset; those count whose flags the script has."""
    preset_name: str | None = None
    only_exact: bool = False
    """True to try only settings that preserve results."""
    metric: str | None = None
    """Regular expression for the quality; None: the training loss, if that can judge."""
    higher_is_better: bool = True
    module: str | None = None
    """Name of the module to run, as `python -m` does; None: the file itself."""
    proposes: bool = True
    """True to map flags that the script is seen to have, where there is no doubt."""
    workdir: str | None = None
    """Folder in which each trial gets a folder of its own to run in, see `Script.workdir`."""
    keeps_nothing: bool = False
    """True if no trained model is kept, so that nothing needs a quality."""
    watch_seconds: float = 0.0
    """Seconds for which the observed run is to watch the training's loop."""
    rate: RateFlag | None = None
    """Flag by which the learning rate follows the batch size; None if it does not."""

    @property
    def judge(self) -> Judge:
        """The judge that is asked for; where none is, the training loss, if that can judge."""
        if self.keeps_nothing:
            return Judge("unneeded")
        if self.only_exact:
            return Judge("nothing", doubt=_AS_ASKED)
        if self.metric is not None:
            return Judge("metric_regex", self.higher_is_better)
        return Judge("training_loss", loss="mean")

    def untouched(self, watched: Iterable[str] = ()) -> Script:
        """Return the call of the script as it is; `watched` are arguments of calls to report."""
        mapped = (flag.call for flag in self.flags if flag.call)
        names = dict.fromkeys((*BATCH_CALLS, *watched, *mapped))
        return Script(
            self.arguments,
            metric=self.metric,
            module=self.module,
            workdir=self.workdir,
            calls=tuple((name, None) for name in names),
        )

    def call(
        self,
        config: TrainingConfig,
        asked: tuple[str, ...] = (),
        own: Mapping[str, Value] = _NOTHING,
    ) -> Script:
        """Return the call of the script under a configuration."""
        by_flag = tuple(flag.knob for flag in self.flags if flag.carries(config[flag.knob]))
        variables = (f"env.{name}" for name in config.of_kind("env"))
        calls, settings = own_calls(config), config.every()
        return replace(
            self.untouched(),
            arguments=with_flags(self.arguments, self.flags, config),
            asked=(*asked, *variables, *(f"calls.{name}" for name in calls)),
            by_flag=by_flag,
            own=dict(own),
            variables=tuple(variables_of(self.flags, settings).items()),
            edits=edits_of(self.flags, settings),
            calls=tuple((calls_of(self.flags, settings) | calls).items()),
        )

    def at_rate(self, call: Script, factor: float) -> Script:
        """Return the call with the learning rate times `factor`, which is read back."""
        if self.rate is None or factor == 1:
            return call
        arguments = self.rate.scaled(call.arguments, factor)
        rates = tuple(factor * rate for rate in self.rate.rates)
        return replace(call, arguments=arguments, learning_rates=rates)

    def identity(self, judge: Judge) -> dict[str, object]:
        """Return the script's part of a study's identity: its options and its config files.

        Arguments are hashed, because they may hold secrets.
        """
        flags = (*self.flags, *([self.rate.flag] if self.rate else ()))
        arguments = json.dumps([self.arguments, [asdict(flag) for flag in flags]])
        options = {
            **({} if self.module is None else {"module": self.module}),
            "arguments_sha256": hashlib.sha256(arguments.encode()).hexdigest(),
            "metric": [self.metric, self.higher_is_better],
            "judge": [judge.by, judge.loss],
        }
        files = files_digest(self.arguments)
        return {"script": options} | ({} if files is None else {"argument_files_sha256": files})


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
    edits: tuple[Edit, ...] = ()
    """Keys of config files that carry settings."""
    calls: dict[str, Value] = field(default_factory=dict)
    """Arguments of classes and functions, each with the value to pass."""
    own: dict[str, Value] = field(default_factory=dict)
    """Settings of the untouched script that differ: what it sets itself gives way to `settings`."""
    told: tuple[str, ...] = ()
    """Knobs of `asked` that are worth reporting."""

    def setting(self, name: str) -> str:
        """Return a setting as text: num_workers=2."""
        return f"{name}={spelled(self.settings[name])}"

    def replacing(self, name: str) -> str:
        """Return a setting as text, with the script's own value if it has one that is replaced."""
        own = self.own.get(name)
        if own in (None, knob_named(name).default):
            return self.setting(name)
        return f"{self.setting(name)} instead of {spelled(own)}"

    def to_json(self) -> str:
        """Return the plan as one line of JSON, without empty parts and PyTorch's defaults."""
        changed = {n: v for n, v in self.settings.items() if v != knob_named(n).default}
        parts = {**asdict(self), "settings": changed}
        return json.dumps({name: part for name, part in parts.items() if part})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read back the output of `to_json`."""
        plan = TypeAdapter(cls).validate_json(text)
        return replace(plan, settings=TrainingConfig.of(plan.settings).every())


def with_flags(
    arguments: Sequence[str], flags: Sequence[Flag], config: TrainingConfig
) -> tuple[str, ...]:
    """Return the arguments with every mapped setting and the user's own flags.

    Arguments after `--` stay unchanged.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = list(arguments[:end])
    # Two values of a setting may share a word, which must not be removed for the other one.
    first_those_to_remove = sorted(flags, key=lambda flag: flag.carries(config[flag.knob]))
    for flag in (*first_those_to_remove, *own_flags(config)):
        if flag.only is not None or flag.carries(config[flag.knob]):
            words = flag.put(words, config[flag.knob])
    return (*words, *arguments[end:])


def own_flags(config: TrainingConfig) -> tuple[Flag, ...]:
    """Return the flags among the user's own knobs; true and false switch `--name` on and off."""
    return tuple(
        Flag(f"flags.{name}", name, "true" if is_switch(name, (value,)) else None)
        for name, value in config.of_kind("flags").items()
    )


def own_calls(config: TrainingConfig) -> dict[str, Value]:
    """Return the arguments of calls among the user's own knobs that have a value."""
    return {name: value for name, value in config.of_kind("calls").items() if value is not None}


def is_switch(name: str, values: Sequence[Value]) -> bool:
    """Return True if the flag takes no value: it has a dash and its values are true and false."""
    return name.startswith("-") and any(isinstance(value, bool) for value in values)


def is_harmless(knob: Knob) -> bool:
    """Return True if a knob preserves results, so it needs no permission and no check."""
    return knob.effect == "exact" or knob.name in _HARMLESS


def plan_run(
    config: TrainingConfig,
    baseline: Mapping[str, Value],
    flags: Sequence[Flag],
    allow_numerics: bool,
    effects: Mapping[str, Effect] = _NONE,
) -> Plan:
    """Plan how each setting of `config` reaches a script.

    The baseline are the settings of the script when it was measured unchanged. `allow_numerics`
    permits settings that change rounding, as the user's own knobs do without other `effects`.
    """
    mapped = {flag.knob: flag.name for flag in flags if flag.carries(config[flag.knob])}
    asked, withheld = [], {}
    for knob in ALL_KNOBS:
        value = config[knob.name]
        own = baseline.get(knob.name, value if knob.name in BY_FLAG_ONLY else knob.default)
        is_default = value == own == knob.default
        if knob.name in mapped or (knob.of_ranks and is_default):
            continue
        obstacle = _obstacle(knob, value, own, allow_numerics)
        # PyTorch's default is asked for as well if the script used another value.
        if not obstacle and (is_harmless(knob) or not is_default):
            asked.append(knob.name)
        elif value != own:
            withheld[f"{knob.name}={spelled(value)}"] = obstacle
    left_alone = {
        knob.name: knob.default
        for knob in ALL_KNOBS
        if not is_harmless(knob) and knob.name not in (*asked, *mapped, *BATCH_KNOBS)
    }
    for name, value in config.own:
        is_allowed = allow_numerics or value == baseline.get(name) or effects.get(name) == "exact"
        if why := _own_obstacle(name, is_allowed):
            withheld[f"{name}={spelled(value)}"], left_alone[name] = why, None
        elif name.startswith("flags."):
            mapped[name] = name.removeprefix("flags.")
        elif name.startswith("env.") or value is not None:
            asked.append(name)
    settings = config.replace(**left_alone).every()
    return Plan(
        settings,
        tuple(asked),
        mapped,
        withheld,
        edits_of(flags, settings),
        calls_of(flags, settings) | own_calls(TrainingConfig.of(settings)),
        own={name: own for name, own in baseline.items() if own != settings.get(name, own)},
        told=tuple(name for name in asked if not _says_nothing(name, settings, baseline)),
    )


def _says_nothing(name: str, settings: Mapping[str, Value], baseline: Mapping[str, Value]) -> bool:
    """Return True for a default that was measured, too, and for null: whatever torch takes."""
    knob, value = knob_named(name), settings[name]
    is_default = value == baseline.get(name, knob.default) == knob.default
    return is_default or (value is None and is_harmless(knob))


def _own_obstacle(name: str, is_allowed: bool) -> str | None:
    """Return why a knob of the user's own cannot be applied to a script, or None."""
    if not name.startswith(("env.", "flags.", "calls.")):
        return "an argument of build_model or build_dataset: pass it by autotune.load"
    return None if is_allowed else "it may change the trained model: needs --allow-numerics"


def _obstacle(knob: Knob, value: Value, own: Value, allow_numerics: bool) -> str:
    """Return why a script that has the value `own` cannot get another one; empty if it can."""
    if knob.name in BY_FLAG_ONLY:
        return f"needs --map {knob.name}=--FLAG"
    if knob.script_obstacle or is_harmless(knob):
        return knob.script_obstacle
    if value == _SCALED and own in (None, value):
        return f"needs the script's own GradScaler: --map {knob.name}:{value}=--FLAG"
    return "" if allow_numerics else "needs --allow-numerics"
