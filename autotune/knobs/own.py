"""Knobs of the user's own: variables, a script's flags, arguments of build functions.

The name says all: `env.NAME`, `flags.--name`, `calls.module.Class.argument`, `options.name` or
`dataset_options.name`. So configurations, files and children need no list of them. Null leaves a
thing as it is: the variable and the script's arguments as they were, the argument not passed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from keyword import iskeyword
from typing import Literal, get_args

from autotune.knobs.base import AnyPlain, Knob, Setup, Value
from autotune.knobs.process import at_start
from autotune.process.common.interpreter import is_at_least, torch_version
from autotune.values.machine import Machine
from autotune.values.outcome import Signature
from autotune.values.text import did_you_mean

Kind = Literal["env", "flags", "calls", "options", "dataset_options"]
"""Environment variable, flag of a script, argument of a class or function that it calls, argument
of build_model, argument of build_dataset."""
KINDS: tuple[Kind, ...] = get_args(Kind)
BUILDERS: Mapping[Kind, str] = {"options": "build_model", "dataset_options": "build_dataset"}
"""Functions of a model.py whose keyword arguments are knobs."""

# What a kind is, for people, and the call that sets one.
_MEANT: Mapping[Kind, tuple[str, str]] = {
    "env": ("an environment variable", "{}=... in the environment, before Python starts"),
    "flags": ("a flag; write --name, or name for name=value", "{} among the script's arguments"),
    "calls": (
        "an argument; write package.module.Class.argument",
        "{}, an argument of what the script calls",
    ),
    "options": ("an argument of build_model", "build_model({}=...)"),
    "dataset_options": ("an argument of build_dataset", "build_dataset({}=...)"),
}
_WORDS = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "flags": re.compile(r"(--?|\+{0,2})[A-Za-z_][A-Za-z0-9_./@:-]*"),
    "calls": re.compile(r"[a-z_]\w*(\.[A-Za-z_]\w*){2,}", re.ASCII),
}
# A name's words, as in HF_TOKEN, --auth-token and apiKey2.
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Words in capitals. Flags such as --key-size are harmless, variables with such a word
# seldom are.
_SECRETS = {"SECRET", "CREDENTIALS"}
_SECRET_ENDS = {"TOKEN", "KEY"}
_PASSWORD = re.compile(r".*(PASSWORD|PASSWD)")
_PLACES = {"PATH", "HOME", "DIR", "ROOT", "PRELOAD", "PLUGIN", "CC", "CXX", "SHELL"}
_PREFIXES = ("AUTOTUNE_", "PYTHON", "LD_", "DYLD_", "TORCHELASTIC_", "SLURM_")
_NEEDED = {"CUDA_VISIBLE_DEVICES", "USER", "TMPDIR", "WANDB_MODE", "RANK", "WORLD_SIZE"}
_NEEDED |= {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK"}
_NEEDED |= {"GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "NODE_RANK", "TMP", "TEMP"}
_NEEDED |= {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}
ALLOCATOR, OLDER_ALLOCATOR = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
"""Both names of the variable that configures torch's allocator."""
# Oldest torch whose CUDAAllocatorConfig::instance reads the newer name, if the older is not set.
_READS_ALLOCATOR = (2, 10)
# Beginnings of variables of NCCL, which exchanges gradients between GPUs.
_OF_RANKS = ("NCCL_", "TORCH_NCCL_")
_ONLY_CUDA = (ALLOCATOR, OLDER_ALLOCATOR, "CUDA_DEVICE_MAX_CONNECTIONS", *_OF_RANKS)


class OwnKnob(Knob):
    """A knob of the user's own, as its name describes it."""

    default = None
    effect = "numerics"  # a search space may say otherwise
    pays = "One of your own settings: autotune knows only what it measured."
    hurts = pays
    source = ""

    def __init__(self, kind: Kind, word: str) -> None:
        self.kind, self.word = kind, word
        self.name = f"{kind}.{word}"
        self.values = AnyPlain(only_text=kind == "env")
        self.is_readable = kind in ("env", "calls")
        self.of_ranks = kind == "env" and word.startswith(_OF_RANKS)
        self.call = _MEANT[kind][1].format(word)
        self.summary = f"One of your own settings: {self.call}."

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        """Return why a variable is not read on this machine; nothing is known of other knobs."""
        if self.kind != "env" or value is None or not self.word.startswith(_ONLY_CUDA):
            return None
        return None if machine.device.startswith("cuda") else "only CUDA reads it"

    def environ(self, value: Value) -> Mapping[str, str]:
        is_set = self.kind == "env" and value is not None
        return {name_to_read(self.word): str(value)} if is_set else {}

    def read_back(self, setup: Setup) -> Value:
        """Return the variable as this process found it when it started, or the argument as passed.

        Raises:
            LookupError: nothing that has the argument was called.
        """
        if self.kind == "env":
            return at_start(name_to_read(self.word))
        passed: Mapping[str, Value] = getattr(setup, "passed", {})  # only a script's has it
        if self.word not in passed:
            raise LookupError(f"the script did not call {self.word.rpartition('.')[0]}")
        return passed[self.word]


def name_to_read(word: str) -> str:
    """Return the name by which torch reads a variable: the older one where that is read first."""
    if word != ALLOCATOR:
        return word
    version = torch_version() or ""  # "" is no older
    is_newer = is_at_least(version, _READS_ALLOCATOR) and os.environ.get(OLDER_ALLOCATOR) is None
    return word if is_newer else OLDER_ALLOCATOR


@lru_cache(maxsize=1024)
def own_knob(name: str) -> OwnKnob | None:
    """Return the user's own knob of that name; None if the name is of no such kind."""
    for kind in KINDS:
        if name.startswith(f"{kind}."):
            return OwnKnob(kind, name.removeprefix(f"{kind}."))
    return None


def own_knobs(names: Iterable[str]) -> Iterator[OwnKnob]:
    """Yield the user's own knobs among these names."""
    yield from (knob for knob in map(own_knob, names) if knob is not None)


def variables_set(settings: Mapping[str, Value]) -> Iterator[str]:
    """Yield the user's own variables that are set among these settings.

    A process reads its environment back; nothing shows that a library reads the variable. Variables
    that torch or OpenMP report belong to other knobs.
    """
    yield from (
        knob.name
        for knob in own_knobs(settings)
        if knob.kind == "env" and settings[knob.name] is not None
    )


def unknown_options(
    names: Iterable[str], signatures: Mapping[str, Signature]
) -> Iterator[tuple[str, str]]:
    """Yield the names of arguments that the build functions do not take, each with its fault."""
    for knob in own_knobs(names):
        signature = signatures.get(BUILDERS.get(knob.kind, ""))
        if signature is None or signature.takes_any or knob.word in signature.defaults:
            continue
        hint = did_you_mean(knob.word, signature.defaults)
        yield knob.name, f"{knob.name} is not an argument of {signature.text}.{hint}"


def word_fault(kind: Kind, word: str) -> str | None:
    """Return why a knob of the user's own cannot have this name, or None."""
    is_argument = word.isidentifier() and word.isascii() and not iskeyword(word)
    if not (_WORDS[kind].fullmatch(word) if kind in _WORDS else is_argument):
        return f"{word!r} cannot be the name of {_MEANT[kind][0]}"
    parts = [part.upper() for part in _PARTS.findall(word)]
    passwords = {part for part in parts if _PASSWORD.fullmatch(part)}
    ends = {*(parts if kind == "env" else parts[-1:])} & _SECRET_ENDS
    if secrets := sorted({*parts} & _SECRETS | ends | passwords):
        return (
            f"{word} looks like a secret ({secrets[0]}), and studies, logs and best.yaml show "
            "the values of settings; set it outside"
        )
    if kind == "env" and (word in _NEEDED or word.startswith(_PREFIXES)):
        return f"{word} is needed by Python, the launcher or autotune itself; set it outside"
    if kind == "env" and (places := sorted({*parts} & _PLACES)):
        return f"{word} names files or programs to use ({places[0]}); set it outside"
    return None
