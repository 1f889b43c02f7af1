"""Maps that a preset or the script's own flags propose, and checks of flags that were named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from autotune.calling.config_file import whole_numbers
from autotune.calling.flag import Flag, flag_from
from autotune.knobs.base import Value, spelled
from autotune.values.errors import UsageError
from autotune.values.outcome import ScriptFlag, Surroundings
from autotune.values.strict_yaml import read
from autotune.values.text import did_you_mean


def shipped_presets() -> dict[str, Path]:
    """Return name to file of the presets."""
    package = Path(__file__).parents[1]
    # A wheel has them in the package, a checkout beside it.
    folders = (package / "presets", package.parent / "presets")
    folder = next(folder for folder in folders if folder.is_dir())
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def preset_maps(name: str | None, own: Sequence[Flag]) -> tuple[Flag, ...]:
    """Return the maps of a preset, except for knobs that the user's own maps name.

    Raises:
        UsageError: there is no such preset.
    """
    if name is None:
        return ()
    shipped = shipped_presets()
    if name not in shipped:
        raise UsageError(
            f"--preset {name!r} is none of {', '.join(shipped)}.{did_you_mean(name, shipped)}"
        )
    maps = read(shipped[name]).value["map"]
    preset = [flag_from(f"{knob}={way}") for knob, way in maps.items()]
    mapped = {flag.knob for flag in own}
    return tuple(flag for flag in preset if flag.knob not in mapped)


# Names of flags, without dashes and what stands before the last dot.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "batch_size": (
        "batch_size",
        "batchsize",
        "batch",
        "bs",
        "train_batch_size",
        "batch_size_train",
        "per_device_train_batch_size",
        "per_gpu_train_batch_size",
        "per_device_batch_size",
        "per_device_batch",
        "batch_size_per_device",
        "batch_size_per_gpu",
        "train_bs",
        "mini_batch_size",
        "device_batch_size",
        "micro_batch_size",
    ),
    "accumulation_steps": (
        "gradient_accumulation_steps",
        "gradient_accumulation",
        "grad_accumulation_steps",
        "grad_accum_steps",
        "grad_accum",
        "accumulation_steps",
        "accumulation",
        "accumulate",
        "accumulate_grad_batches",
        "accum_steps",
        "accum_iter",
    ),
}


def proposals(
    surroundings: Surroundings,
    found: Mapping[str, Value],
    arguments: Sequence[str],
    is_fed: bool = True,
) -> tuple[tuple[Flag, ...], tuple[str, ...]]:
    """Return the maps of which there is no doubt, and a note on each flag of which there is.

    Where no flag gives the value, a config file among the arguments may: one key of it.

    Args:
        surroundings: what the observed run of the script showed.
        found: settings of its training there, for each knob that may be mapped.
        arguments: the script's arguments, whose spelling of a flag is kept.
        is_fed: True if a torch DataLoader feeds training, whose batch size is known for certain.
    """
    maps, notes = [], []
    flags = [*surroundings.flags, *_written(arguments, surroundings)]
    kept = [ScriptFlag((way,), number) for way, number in whole_numbers(arguments)]
    for knob, value in found.items():
        named = [flag for flag in flags if _is_name_of(knob, flag)]
        numbered = [flag for flag in named if not flag.is_open]
        equal = [flag for flag in numbered if flag.value == value]
        if not numbered and is_fed:
            equal = named
        equal = equal or [one for one in kept if one.value == value and _is_name_of(knob, one)]
        if len(equal) == 1:
            maps.append(Flag(knob, _spelling(equal[0], arguments)))
        elif equal:
            both = " and ".join(_spelling(flag, arguments) for flag in equal)
            is_known = equal[0].value is not None
            alike = f"are {spelled(value)} alike" if is_known else "have no value alike"
            notes.append(f"{both} {alike}: say which with --map {knob}=FLAG")
        else:
            notes += [_doubt(knob, flag, value, arguments, is_fed) for flag in numbered]
    return tuple(maps), tuple(notes)


def _written(arguments: Sequence[str], surroundings: Surroundings) -> Iterator[ScriptFlag]:
    """Yield the flags and keys among the arguments that no parser was seen to know.

    A script may read its arguments itself: `--name 12`, `--name=12` and `name=12`.
    """
    known = {name for flag in surroundings.flags for name in flag.names}
    words = list(arguments)
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name not in known and (equals or name.startswith("-")):
            text = value if equals else after
            number = int(text) if text.isascii() and text.isdigit() else None
            yield ScriptFlag((f"{name}=" if equals and name.startswith("-") else name,), number)


def _is_name_of(knob: str, flag: ScriptFlag) -> bool:
    keys = (name.removesuffix("=").rpartition(":")[2] for name in flag.names)
    bare = {key.rpartition(".")[2].lstrip("-").replace("-", "_").lower() for key in keys}
    return (flag.is_open or flag.value is not None) and not bare.isdisjoint(_NAMES[knob])


def _spelling(flag: ScriptFlag, arguments: Sequence[str]) -> str:
    """Return the flag as the arguments spell it; else its longest name, the first of several."""
    given = {word.partition("=")[0] for word in arguments}
    used = [name for name in flag.names if name.removesuffix("=") in given]
    return used[-1] if used else max(flag.names, key=len)


def _doubt(
    knob: str, flag: ScriptFlag, value: Value, arguments: Sequence[str], is_fed: bool
) -> str:
    name = _spelling(flag, arguments)
    if knob == "batch_size" and not is_fed:  # a map of it would be read back as something else
        return (
            f"{name} is {flag.value}, and the first dimension of what the model is given is "
            f"{spelled(value)}: only a batch that is the first one can be searched"
        )
    return (
        f"{name} is {flag.value}, and training was seen with {knob}={spelled(value)}: "
        f"--map {knob}={name} if it is the one"
    )


def unknown_words(surroundings: Surroundings, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags and keys that the script does not know, each with its fault."""
    known = [name for flag in surroundings.flags for name in flag.names]
    for word in words:
        kind = "--" if word.startswith("-") else "="
        names = [name for name in known if name.startswith("-") == word.startswith("-")]
        if kind in surroundings.refused and names and not _knows(names, word):
            yield word, f"the script has no {word}.{did_you_mean(word, names)}"


def _knows(names: Sequence[str], word: str) -> bool:
    """Return True if a name is the word, or begins with it, as argparse allows."""
    plain = word.lstrip("+").partition("=")[0]
    if word.startswith("+"):  # Hydra adds keys that it does not know
        return True
    return any(
        name == plain or (name.startswith("--") and name.startswith(plain)) for name in names
    )
