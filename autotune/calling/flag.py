"""Ways in which a script takes a setting: a flag, a pair of flags, a word, a variable, a file.

A map names the way as its user would write it:

* `--batch-size`: the flag and its value as two words; `--batch_size=` as one word
* `--pin-memory/--no-pin-memory`: one flag for true, the other for false
* `train.batch_size`: the word `train.batch_size=64`
* `env:BATCH_SIZE`: an environment variable
* `--config:train.batch_size`: a key of the YAML or JSON file that follows `--config`
* `call:package.module.Class.argument`: an argument of a class or function that the script calls
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from autotune.knobs import KNOBS
from autotune.knobs.base import Value, spelled
from autotune.knobs.own import word_fault
from autotune.values.errors import UsageError
from autotune.values.strict_yaml import read, shipped
from autotune.values.text import did_you_mean

_VARIABLE, CALL = "env:", "call:"
LEARNING_RATE = "lr"
"""Name by which a map gives the flag of the learning rate, which is no setting."""
_TRAINING = "transformers.training_args.TrainingArguments"
BATCH_CALLS = (
    f"{_TRAINING}.per_device_train_batch_size",
    f"{_TRAINING}.gradient_accumulation_steps",
    "accelerate.accelerator.Accelerator.gradient_accumulation_steps",
    "lightning.pytorch.trainer.trainer.Trainer.accumulate_grad_batches",
    "pytorch_lightning.trainer.trainer.Trainer.accumulate_grad_batches",
)
"""Arguments of libraries that decide batches, for which a script need not have a flag."""
_FILE = re.compile(r"(-[^\s:=]+|[^\s:=][^:=]*\.(?:ya?ml|json)):([^\s:=]+)")
_PAIR = re.compile(r"(-[^\s/:=]+)/(-[^\s/:=]+)")
_WORD = re.compile(r"-[^\s:]+|\+{0,2}[A-Za-z_][A-Za-z0-9_./@:-]*")


@dataclass(frozen=True, slots=True)
class Flag:
    """A way in which the script takes a knob's setting."""

    knob: str
    name: str
    """The way as a map spells it: "--batch-size"."""
    only: str | None = None
    """Value of the knob for which a switch is given; None: the flag takes a value."""

    @property
    def left(self) -> str:
        """The knob, or its one value, as a map names it: amp_dtype:float16."""
        return self.knob + ("" if self.only is None else f":{self.only}")

    @property
    def text(self) -> str:
        """The map as `--map` takes it."""
        return f"{self.left}={self.name}"

    @property
    def variable(self) -> str | None:
        """Name of the environment variable; None for another way."""
        return self.name.removeprefix(_VARIABLE) if self.name.startswith(_VARIABLE) else None

    @property
    def call(self) -> str | None:
        """Name of the argument of a class or function; None for another way."""
        return self.name.removeprefix(CALL) if self.name.startswith(CALL) else None

    @property
    def described(self) -> str:
        """The way in a sentence."""
        return self.call or f"the script's {self.name}"

    @property
    def file_key(self) -> tuple[str, str] | None:
        """The word that names a file, and the key in that file; None for another way."""
        found = None if self.variable or self.call else _FILE.fullmatch(self.name)
        return (found[1], found[2]) if found else None

    @property
    def words(self) -> tuple[str, ...]:
        """Flags and keys as the script knows them, such as both of a pair."""
        if self.variable or self.call or self.file_key:
            return ()
        pair = _PAIR.fullmatch(self.name)
        return (pair[1], pair[2]) if pair else (self.name.removesuffix("="),)

    @property
    def is_dashed(self) -> bool:
        """True for `--name VALUE`; False for `name=VALUE`."""
        return self.name.startswith("-") and not self.name.endswith("=")

    def carries(self, value: Value) -> bool:
        """Return True if this flag can pass `value`: a switch has one value, null has none."""
        return value is not None if self.only is None else spelled(value) == self.only

    def put(self, arguments: Sequence[str], value: Value) -> list[str]:
        """Return the arguments with the flag set to `value`, or added at their end."""
        words = list(arguments)
        if not self.words:  # a variable, an argument of a call, or a key of a file
            return words
        if self.only is not None:
            others = [word for word in words if word not in self.words]
            return [*others, self.name] if self.carries(value) else others
        if len(self.words) > 1:
            others = [word for word in words if word not in self.words]
            return [*others, self.words[0 if value else 1]]
        name, found = self.words[0], False
        equal = f"{name}={spelled(value)}"
        for place, word in enumerate(words):
            if word == name and self.is_dashed and place + 1 < len(words):
                words[place + 1], found = spelled(value), True
            elif word.startswith(f"{name}="):
                words[place], found = equal, True
        new = [name, spelled(value)] if self.is_dashed else [equal]
        return words if found else words + new

    def given(self, arguments: Sequence[str]) -> str | None:
        """Return the value that the arguments give the flag, the last one; None if none do."""
        return given(self.name.removesuffix("="), arguments) if self.words else None


def given(name: str, arguments: Sequence[str]) -> str | None:
    """Return the value of the last `name VALUE` or `name=VALUE`; None if there is none."""
    found = None
    for word, after in zip_longest(arguments, arguments[1:]):
        if word == "--":
            break
        if word.startswith(f"{name}="):
            found = word.removeprefix(f"{name}=")
        elif word == name and name.startswith("-") and after is not None:
            found = after
    return found


def flag_from(text: str) -> Flag:
    """Parse a map such as "batch_size=--batch-size", or a switch, "amp_dtype:float16=--fp16".

    Raises:
        UsageError: the text is neither, or names no knob.
    """
    left, equals, name = text.partition("=")
    knob, colon, only = left.partition(":")
    if not equals or not name:
        raise UsageError(
            f"--map {text!r} is not SETTING=WAY, such as batch_size=--batch-size. To leave the "
            "script's flags alone, give --no-map."
        )
    if knob == LEARNING_RATE and not colon and _WORD.fullmatch(name.removesuffix("=")):
        return Flag(knob, name)
    if knob not in KNOBS:
        raise UsageError(f"--map {text!r}: unknown setting {knob!r}.{did_you_mean(knob, KNOBS)}")
    flag = Flag(knob, name, only if colon else None)
    if fault := _fault(flag):
        raise UsageError(f"--map {text!r}: {fault}.")
    return flag


def _fault(flag: Flag) -> str | None:
    """Return why a script cannot take the knob in this way, or None."""
    if flag.only is not None and not flag.name.startswith("-"):
        return "SETTING:VALUE needs a flag without a value, such as amp_dtype:float16=--fp16"
    if flag.variable is not None:
        return word_fault("env", flag.variable)
    if flag.call is not None:
        return word_fault("calls", flag.call)
    if flag.file_key:
        return None
    if len(flag.words) > 1:
        is_switch = KNOBS[flag.knob].values.fault(True) is None
        return None if is_switch else f"a pair of flags is for true and false, not {flag.knob}"
    if not _WORD.fullmatch(flag.words[0]):
        return (
            f"{flag.name!r} is not a way to pass a setting; write --flag, --flag/--no-flag, key "
            "(for key=VALUE), env:NAME, call:module.Class.argument (of a library), or --config:key "
            "for a key of the file that --config names"
        )
    return None


def variables_of(flags: Sequence[Flag], settings: Mapping[str, Value]) -> dict[str, str]:
    """Return the environment variables that carry settings."""
    return {
        flag.variable: spelled(settings[flag.knob])
        for flag in flags
        if flag.variable and flag.carries(settings[flag.knob])
    }


def calls_of(flags: Sequence[Flag], settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return the arguments of classes and functions that carry settings, by their names."""
    return {
        flag.call: settings[flag.knob]
        for flag in flags
        if flag.call and flag.carries(settings[flag.knob])
    }


def parts_of_call(name: str) -> tuple[str, tuple[str, ...], str]:
    """Return the module, the names in it, and the argument of "package.module.Class.argument".

    A class begins with a capital; without one, the module ends before the function.
    """
    *owners, argument = name.split(".")
    first = next((n for n, part in enumerate(owners) if part[0].isupper()), len(owners) - 1)
    return ".".join(owners[:first]), tuple(owners[first:]), argument


def preset_maps(name: str | None, own: Sequence[Flag]) -> tuple[Flag, ...]:
    """Return the maps of a preset, except for knobs that the user's own maps name.

    Raises:
        UsageError: there is no such preset.
    """
    if name is None:
        return ()
    maps = read(preset_file(name)).value["map"]
    preset = [flag_from(f"{knob}={way}") for knob, way in maps.items()]
    mapped = {flag.knob for flag in own}
    return tuple(flag for flag in preset if flag.knob not in mapped)


def preset_file(name: str) -> Path:
    """Return the file of a preset.

    Raises:
        UsageError: there is no such preset.
    """
    known = shipped("presets")
    if name not in known:
        raise UsageError(
            f"--preset {name!r} is not one of {', '.join(known)}.{did_you_mean(name, known)}"
        )
    return known[name]
