"""Find how each setting reaches an unmodified training script, and say why others cannot.

Maps go through the script's own flags: those named, checked by its own parser, its preset's, and
proposed ones. Other settings are applied by autotune itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from autotune.calling.arguments import whole_numbers
from autotune.calling.flag import CALL, LEARNING_RATE, Flag
from autotune.configuration.best_config import BestConfig
from autotune.configuration.mismatch import digests_of_arguments
from autotune.configuration.script import (
    BY_FLAG_ONLY,
    Judge,
    RateFlag,
    Script,
    ScriptOptions,
    is_harmless,
)
from autotune.configuration.search_space import SpaceFile
from autotune.configuration.training_config import BATCH_KNOBS, PRECISION, TrainingConfig
from autotune.context.workload import Traits
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob, Value, spelled
from autotune.knobs.compile import GRAPHS
from autotune.knobs.own import BUILDERS, OwnKnob
from autotune.values.errors import UsageError
from autotune.values.outcome import Diagnosed, Observed, Rejected, ScriptFlag, Surroundings
from autotune.values.text import by_reason, did_you_mean

_SCALED = "float16"
_NOT_TOLD = "the phases of this script's steps cannot be separated"
_NUMBER = re.compile(r"\d*\.?\d+(e[-+]?\d+)?", re.ASCII)
_NOT_COMPARED = "the training loss cannot compare that"
_NOT_SEEN = (
    "no DataLoader shows it. If it is {}, as the first dimension of the model's input is, name its "
    "flag with --map batch_size=--FLAG"
)
_TRAINER = ".TrainingArguments."
# Names of flags, without dashes and what stands before the last dot.
_NAMES: Mapping[str, re.Pattern[str]] = {
    "batch_size": re.compile(
        r"((train|mini|micro|device|per_device|per_gpu)_)*(bs|batch(_?size)?)"
        r"(_train|_per_device|_per_gpu)?"
    ),
    "accumulation_steps": re.compile(
        r"(grad(ient)?_)?accum(ulate|ulation)?(_steps|_iter|_grad_batches)?"
    ),
    LEARNING_RATE: re.compile(r"((base|init|initial|max|peak)_?)?(lr|learning_?rate)"),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requests to the profiling run of a script."""

    calls: tuple[str, ...] = ()
    """Arguments of calls that it is to report."""
    loss_seconds: float = 0.0
    """Seconds in which its loss should fall; 0 to ignore it."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Flags of the user's own, each with the place where it was named."""
    knobs: Callable[[TrainingConfig], Collection[str]] = lambda _: ()
    """Function that returns the knobs that need a map, given the script's settings."""
    deadline_seconds: float = 600.0
    to_loss: bool = False
    """True if its training loss is the objective, so that no metric can judge in its place."""


@dataclass(frozen=True)
class ScriptTraits(Traits):
    """The traits of a script: its observed run says how each setting reaches it."""

    to_loss: bool = False
    """See `Wanted.to_loss`."""
    counts_flops = False
    compares_first_steps = True
    settings_in = "it or its arguments"

    def with_flags(self, flags: Iterable[Flag]) -> ScriptTraits:
        """Return the traits with more maps in force."""
        every = (*self.script.flags, *flags)
        return replace(self, script=replace(self.script, flags=every, preset=()))

    def scaling_rates(self) -> ScriptTraits:
        return replace(self, script=with_rate(self.script, self.seen))

    def call(self, config: TrainingConfig | None, lr_factor: float = 1.0) -> Script:
        if config is None:
            return self.script.untouched()
        # A value of the script's own gives way to another one.
        found = self.script.call(config, self.asked(config), self.seen.workload.baseline)
        return self.script.at_rate(found, lr_factor)

    def stages(self, processes: int) -> Diagnosed | Rejected:
        if processes > 1:
            return Rejected("with several processes, the phases of a script's steps are not timed")
        return self.seen.stages or Rejected(_NOT_TOLD)

    @property
    def identity(self) -> dict[str, object]:
        return self.script.identity(self.judge)

    def digests(self, answer: BestConfig) -> dict[str, object]:
        return digests_of_arguments(answer, self.script.arguments)

    def asked(self, config: TrainingConfig) -> tuple[str, ...]:
        """Return the knobs that autotune applies itself.

        These are the reachable knobs for which the script has no flag. A switch for another value,
        such as --fp16 for bfloat16, does not count, nor does a value that the script sets itself.
        """
        values = ((flag, config[flag.knob]) for flag in self.script.flags)
        # The flag, or its absence, sets the knob.
        carried = (f.knob for f, it in values if f.only is None or it is None or f.carries(it))
        flags, own = {*BY_FLAG_ONLY, *carried}, self.seen.workload.baseline
        return tuple(
            knob.name
            for knob in ALL_KNOBS
            if not self.obstacle(knob)
            and knob.name not in flags
            and not (knob.name in self.seen.own and config[knob.name] == own[knob.name])
        )

    def faults(self, path: Path, config: TrainingConfig, own: TrainingConfig) -> Iterator[str]:
        names = self.asked(config)
        for knob, value in config.items():
            flags = [flag for flag in self.script.flags if flag.knob == knob.name]
            is_carried, why = any(flag.carries(value) for flag in flags), ""
            if isinstance(knob, OwnKnob):
                if knob.kind in BUILDERS:
                    why = f"it is an argument of {BUILDERS[knob.kind]} in a model.py"
            elif value == own[knob.name] or is_carried or (value is None and is_harmless(knob)):
                continue
            elif value in _unscaled(self.seen):
                why = f"needs the script's own GradScaler: --map {knob.name}:{value}=--FLAG"
            elif knob.name not in names:
                why = self.obstacle(knob) or f"{flags[0].described} cannot pass it"
            if why:
                yield f"{knob.name}={spelled(value)} cannot be applied to {path}: {why}."

    def narrowed(
        self, file: SpaceFile, processes: int, holds_batch: bool
    ) -> tuple[SpaceFile, tuple[str, ...]]:
        seen, obstacles = self.seen, dict(self._obstacles(file))
        named = {flag.knob for flag in (*self.script.flags, *self.proposed)}
        unmapped = [name for name in BATCH_KNOBS if name not in named]
        if holds_batch and unmapped:
            for name in set(BATCH_KNOBS) & file.offers.keys():
                obstacles[name] = f"keeping the effective batch needs --map {unmapped[0]}=--FLAG"
        # Graphs write to the same memory each time, which code that the script compiles may keep.
        barred = (*_unscaled(seen), *(GRAPHS if "compile_mode" in seen.own else ()))
        offers = {
            name: tuple(value for value in values if value not in barred or name not in KNOBS)
            for name, values in file.offers.items()
            if name not in obstacles
        }
        taken = [
            f"searching {flag.knob} through {flag.described} (--no-map prevents it)"
            for flag in self.proposed
            if flag in self.script.flags and not self.refusal and flag.knob not in obstacles
        ]
        # Code that the script compiles for each shape might be compiled once.
        may_share = seen.recompilations > 0 and "compile_dynamic" in seen.own
        if may_share and "compile_mode" in offers and "compile_dynamic" not in offers:
            offers["compile_dynamic"] = (None, True)
            taken.append("searching compile_dynamic: the script's code is compiled again and again")
        worth_a_note = {
            name: why
            for name, why in obstacles.items()
            if not (processes == 1 and name in KNOBS and KNOBS[name].of_ranks)
        }
        own = TrainingConfig.of(seen.workload.baseline)
        is_seen = bool(seen.training_loader)
        return replace(file, offers=offers), (*taken, *_kept(worth_a_note, own, is_seen))

    def _obstacles(self, file: SpaceFile) -> Iterator[tuple[str, str]]:
        for knob in ALL_KNOBS:
            if knob.name in file.offers and (why := self.obstacle(knob)):
                yield knob.name, why
        called = {name for flag in self.seen.surroundings.flags for name in flag.names}
        for name, effect in file.own.effects.items():
            word = name.removeprefix("calls.")
            if word != name and f"{CALL}{word}" not in called:
                yield name, _uncalled(word)
            elif effect == "statistics" and self.judge.loss is not None:
                yield name, f"it changes the course of training: {self._needs_metric}"
            elif effect != "exact" and not self.judge.tries_numerics:
                yield name, f"it may change the trained model: {self._unjudged}"

    def obstacle(self, knob: Knob) -> str:
        """Return why a search cannot apply the knob to the script; empty if it can."""
        if knob.name in self.seen.fixed:
            return self.seen.fixed[knob.name]
        if self.refusal and knob.name in BATCH_KNOBS:
            return self.refusal
        # A knob of numerics may compute the same, rounding in the number format aside.
        rounds = knob.effect == "numerics" and knob.name not in PRECISION and not knob.of_ranks
        only_rounds = self.judge.by == "gradients" and rounds
        is_tried = is_harmless(knob) or self.judge.tries_numerics or only_rounds
        is_mapped = any(flag.knob == knob.name for flag in self.script.flags)
        is_open = is_mapped or not (knob.name in BY_FLAG_ONLY or knob.script_obstacle)
        return "" if is_tried and is_open else self._why_not(knob, is_mapped)

    def _why_not(self, knob: Knob, is_mapped: bool) -> str:
        if is_mapped:
            return f"it changes the course of training: {self._unjudged}"
        if way := next((flag.described for flag in self.proposed if flag.knob == knob.name), None):
            return f"it could go through {way}, but changes training: {self._unjudged}"
        if knob.effect == "statistics" and not knob.of_ranks:
            if knob.name == "batch_size" and not self.seen.training_loader:
                return _NOT_SEEN.format(self.seen.workload.baseline[knob.name])
            return f"it changes the course of training, so it needs --map {knob.name}=--FLAG"
        if knob.name in BY_FLAG_ONLY:
            return f"only the script can apply it: --map {knob.name}=--FLAG"
        return knob.script_obstacle or f"it changes rounding: {self._unjudged}"

    @property
    def _unjudged(self) -> str:
        return "--exact-only leaves it out" if self.script.only_exact else self._needs_metric

    @property
    def _needs_metric(self) -> str:
        return _NOT_COMPARED + ("" if self.to_loss else ", so it needs --metric-regex")


def mapped(
    script: ScriptOptions, observed: Observed, wanted: Wanted
) -> tuple[ScriptTraits, tuple[str, ...]]:
    """Return the traits of an observed script, with maps that leave no doubt, and notes on others.

    These are the user's, those of its preset that it has flags for, and those of flags that the
    search proposes.

    Raises:
        UsageError: a map, or a flag of the user's own, names what the script does not have; all are
            named.
    """
    judge, today = judge_of(script, observed), TrainingConfig.of(observed.workload.baseline)
    traits = ScriptTraits(observed.workload, judge, observed, script, to_loss=wanted.to_loss)
    preset, lacking = _known_maps(script, observed.surroundings, wanted.flags)
    traits = traits.with_flags(preset)
    taken = {flag.knob for flag in traits.script.flags}
    found = {name: today[name] for name in wanted.knobs(today) if name not in taken}
    if not (script.proposes and found):
        return traits, lacking
    is_fed = bool(observed.training_loader)
    flags, doubts = proposals(observed.surroundings, found, script.arguments, is_fed)
    own = wanted.flags.keys()
    flags = tuple(flag for flag in flags if own.isdisjoint((flag.name, *(flag.file_key or ()))))
    traits = replace(traits, proposed=flags)
    if not judge.tries_numerics:  # so no other batch size is tried
        return traits, lacking
    return traits.with_flags(flags), (*lacking, *doubts)


def with_rate(script: ScriptOptions, observed: Observed) -> ScriptOptions:
    """Return the script with its flag for the learning rate, and the rates that were observed.

    Without a map, it is the only flag that is named so and has the rate of a group's optimizer.

    Raises:
        UsageError: there is none, or several, or the arguments give it something but a number.
    """
    rates, seen = observed.learning_rates, list(observed.surroundings.flags)
    known = [*seen, *_written(script.arguments, observed.surroundings)]
    if (given := script.rate) is not None:
        named = [flag for flag in known if given.flag.words[0] in flag.names]
        value = next((one.value for one in named if one.value), max(rates, default=0.0))
        rate = RateFlag(given.flag, float(value), rates)
        rate.scaled(script.arguments, 1.0)  # refused before a trial needs it
        return replace(script, rate=rate)
    found = [one for one in known if one.value in rates and _is_name_of(LEARNING_RATE, one)]
    if len(found) == 1 and script.proposes:
        flag = Flag(LEARNING_RATE, _spelling(found[0], script.arguments))
        return replace(script, rate=RateFlag(flag, float(found[0].value or 0.0), rates))
    several = " and ".join(_spelling(one, script.arguments) for one in found)
    raise UsageError(
        f"--lr-scaling: {several or 'no flag of the script'} "
        f"{'both have' if several else 'has'} the learning rate of its optimizer "
        f"({', '.join(map(str, rates)) or 'it has none'}). Name the flag with --map lr=--FLAG."
    )


def judge_of(script: ScriptOptions, observed: Observed) -> Judge:
    """Return the judge of an observed script: as requested, or its loss if it can be used."""
    asked, loss = script.judge, observed.loss
    if asked.by != "training_loss" or (loss is not None and not loss.doubt):
        return asked
    if loss is None:
        return Judge("nothing")
    return Judge("gradients" if loss.sums.settled_gradients else "nothing", doubt=loss.doubt)


def _known_maps(
    script: ScriptOptions, around: Surroundings, own: Mapping[str, str]
) -> tuple[tuple[Flag, ...], tuple[str, ...]]:
    """Return the maps of a script's preset that it has flags for, and a note on each other one.

    `own` says of each of the user's own flags where it was named. Raise an error as `mapped` does.
    """
    called = {flag.name: flag for flag in script.flags if flag.call}
    words = called | {word: flag for flag in script.flags for word in flag.words}
    places = {word: f"--map {flag.knob}={flag.name}" for word, flag in words.items()}
    places |= own
    faults = [f"{places[word]}: {fault}" for word, fault in unknown_words(around, list(places))]
    if faults:
        raise UsageError("\n".join(faults))
    # A script that reads no flags would not refuse one.
    seen = {name for flag in around.flags for name in flag.names}
    seen |= {word.partition("=")[0] for word in script.arguments}
    known = tuple(flag for flag in script.preset if seen.issuperset(flag.words))
    notes = (
        f"ignoring --map {flag.text} of the preset: this script has no such flag"
        for flag in script.preset
        if flag not in known
    )
    return known, tuple(notes)


def proposals(
    surroundings: Surroundings,
    found: Mapping[str, Value],
    arguments: Sequence[str],
    is_fed: bool = True,
) -> tuple[tuple[Flag, ...], tuple[str, ...]]:
    """Return the maps that leave no doubt, and a note on each doubtful flag.

    Where no flag gives the value, a key of a config file among the arguments may, or an argument
    of a library's class.

    Args:
        surroundings: what the observed run of the script showed.
        found: settings of its training there, for each knob that may be mapped.
        arguments: the script's arguments, whose spelling of a flag is kept.
        is_fed: True if a torch DataLoader feeds training, whose batch size is known for certain.
    """
    maps, notes = [], []
    calls = [flag for flag in surroundings.flags if flag.names[0].startswith(CALL)]
    if any(_TRAINER in flag.names[0] for flag in calls):  # which makes the Accelerator itself
        calls = [flag for flag in calls if ".Accelerator." not in flag.names[0]]
    flags = [flag for flag in surroundings.flags if flag not in calls]
    flags += _written(arguments, surroundings)
    kept = [ScriptFlag((way,), number) for way, number in whole_numbers(arguments)] + calls
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
            alike = f"are both {spelled(value)}" if is_known else "both have no value"
            notes.append(f"{both} {alike}: choose one with --map {knob}=FLAG")
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
            number = float(text) if _NUMBER.fullmatch(text) else None
            number = int(text) if text.isascii() and text.isdigit() else number
            yield ScriptFlag((f"{name}=" if equals and name.startswith("-") else name,), number)


def _is_name_of(knob: str, flag: ScriptFlag) -> bool:
    keys = (name.removesuffix("=").rpartition(":")[2] for name in flag.names)
    bare = {key.rpartition(".")[2].lstrip("-").replace("-", "_").lower() for key in keys}
    return (flag.is_open or flag.value is not None) and any(map(_NAMES[knob].fullmatch, bare))


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
            f"{name} is {flag.value}, but the first dimension of the model's input is "
            f"{spelled(value)}: the batch size can be varied only where that is the batch"
        )
    return (
        f"{name} is {flag.value}, but training runs with {knob}={spelled(value)}: use --map "
        f"{knob}={name} if it sets that"
    )


def unknown_words(surroundings: Surroundings, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags and keys that the script does not know, each with its fault."""
    known = [name for flag in surroundings.flags for name in flag.names]
    for word in words:
        if word.startswith(CALL) and word not in known:
            yield word, f"{_uncalled(word)}."
            continue
        kind = "--" if word.startswith("-") else "="
        names = [name for name in known if name.startswith("-") == word.startswith("-")]
        if kind in surroundings.refused and names and not _knows(names, word):
            yield word, f"the script has no {word}.{did_you_mean(word, names)}"


def _uncalled(word: str) -> str:
    owner = word.removeprefix(CALL).rpartition(".")[0]
    return (
        f"the script was not seen to call {owner}; write the module that defines it, as its "
        "__module__ says"
    )


def _knows(names: Sequence[str], word: str) -> bool:
    """Return True if a name is the word, or begins with it, as argparse allows."""
    plain = word.lstrip("+").partition("=")[0]
    if word.startswith("+"):  # Hydra adds keys that it does not know
        return True
    return any(
        name == plain or (name.startswith("--") and name.startswith(plain)) for name in names
    )


def _unscaled(observed: Observed) -> tuple[Value, ...]:
    """Return float16 unless the script scales its loss and switches autocast on itself."""
    return () if observed.scales and "amp_dtype" in observed.own else (_SCALED,)


def _kept(obstacles: Mapping[str, str], own: TrainingConfig, is_fed: bool) -> Iterator[str]:
    """Yield a note for each reason for which settings stay as they are.

    `is_fed` is True if a torch DataLoader feeds training; else its batch size is not known.
    """
    for why, names in by_reason(obstacles).items():
        if len(names) > 1:
            yield f"not varying {', '.join(names)}: {why.replace('it ', 'each ', 1)}"
        else:
            is_known = names[0] in KNOBS and (is_fed or names[0] != "batch_size")
            value = spelled(own[names[0]]) if is_known else "as it is"
            yield f"{names[0]} stays {value}: {why}"
