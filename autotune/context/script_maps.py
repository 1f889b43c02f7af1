"""The maps of a script: those named, checked by its own parser, its preset's, and proposed ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from autotune.calling.proposed_maps import proposals, unknown_words
from autotune.configuration.script import ScriptOptions
from autotune.configuration.space_file import SpaceFile
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig
from autotune.context.options import WorkloadOptions
from autotune.context.own_knobs import flags_in
from autotune.values.errors import UsageError
from autotune.values.outcome import Observed, Surroundings


def with_maps(
    workload: WorkloadOptions, file: SpaceFile, observed: Observed
) -> tuple[WorkloadOptions, tuple[str, ...]]:
    """Return the options with the maps that the observed flags allow, and notes on such flags.

    Raises:
        UsageError: a map or the space names a flag that the script does not have.
    """
    script, around = workload.script, observed.surroundings
    assert script is not None
    own = {name.removeprefix("flags."): name for name in flags_in(file.own.offers)}
    places = {word: file.position(name) for word, name in own.items()}
    script, lacking = known_maps(script, around, places)
    today = TrainingConfig.of(observed.workload.baseline)
    # A batch that is held needs both, whichever of them the space offers.
    is_held = workload.held_batch(today) is not None and not file.offers.keys().isdisjoint(
        BATCH_KNOBS
    )
    wanted = BATCH_KNOBS if is_held else ("batch_size",) if "batch_size" in file.offers else ()
    script, notes = with_proposed(script, observed, wanted, own)
    notes = notes if script.tries_numerics else ()  # else no batch size can be tried
    return replace(workload, script=script), (*lacking, *notes)


def with_proposed(
    script: ScriptOptions, observed: Observed, knobs: Iterable[str], own: Collection[str]
) -> tuple[ScriptOptions, tuple[str, ...]]:
    """Return the script with maps of those knobs of which there is no doubt, and notes on others.

    Nothing is proposed for a knob that is mapped, nor where the user wants no map; `own` are flags
    of the user's own.
    """
    today, mapped = TrainingConfig.of(observed.workload.baseline), {f.knob for f in script.flags}
    found = {name: today[name] for name in knobs if name not in mapped}
    if not (script.proposes and found):
        return script, ()
    is_fed = bool(observed.training_loader)
    flags, notes = proposals(observed.surroundings, found, script.arguments, is_fed)
    flags = tuple(flag for flag in flags if {flag.name, *(flag.file_key or ())}.isdisjoint(own))
    searched = flags if script.tries_numerics else ()
    return replace(script, flags=(*script.flags, *searched), proposed=flags), notes


def known_maps(
    script: ScriptOptions, around: Surroundings, own: Mapping[str, str]
) -> tuple[ScriptOptions, tuple[str, ...]]:
    """Return the script with its own maps and those of its preset that it has flags for.

    Return also a note on each other map of the preset. `own` says of each of the user's own flags
    where it was named.

    Raises:
        UsageError: a map, or a flag of the user's own, names what the script does not have; all are
            named.
    """
    places = {w: f"--map {flag.knob}={flag.name}" for flag in script.flags for w in flag.words}
    places |= own
    faults = [f"{places[word]}: {fault}" for word, fault in unknown_words(around, list(places))]
    if faults:
        raise UsageError("\n".join(faults))
    unknown = dict(unknown_words(around, [w for flag in script.preset for w in flag.words]))
    known = [flag for flag in script.preset if unknown.keys().isdisjoint(flag.words)]
    notes = (
        f"the preset's --map {flag.text} is left out: this script has no such flag"
        for flag in script.preset
        if flag not in known
    )
    return replace(script, flags=(*script.flags, *known)), tuple(notes)
