"""Measure what each knob is worth on each example study, turned alone.

    python -m benchmarks.knobs [NAME ...] [--knobs KNOB[=VALUE] ...] [--rounds 3]

Fresh processes take turns: one with the study's own settings, and one for each of up to four turned
knobs, in an order that changes. Each round has a warm host of its own and goes through all knobs,
so that the rounds of a knob lie minutes apart. A knob that is clearly slower after two rounds is
left out of the others. A knob that frees memory is timed with the batch that this memory permits.

The ratios stand in benchmarks/results/knobs.json, which is written after each group: the same
command goes on where it was ended, and more `--rounds` add to those that are there. `--anew`
forgets the ratios of the studies and knobs that are asked for. `--rounds 0` only tells what cannot
be turned. For studies with repeated blocks, a second table has the seconds of compiling the whole
model and of compiling its blocks, each with an empty cache. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from autotune.comparison.rounds import (
    Course,
    Participant,
    Results,
    disturbance_in,
    play_round,
    time_in_round,
)
from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig, environ_of
from autotune.context.inspection import inspect, inspection
from autotune.process.runner import Runner, SubprocessRunner
from autotune.values.measurement import Measurement
from autotune.values.outcome import Failure, Inspected, Lost, describe
from benchmarks.knob_results import DEEP, NAMES, KnobResults, Worth, write_compile_seconds
from benchmarks.knob_turns import TURNS, Turn

ROOT = Path(__file__).resolve().parent.parent
STUDIES, RESULTS = ROOT / "studies", ROOT / "benchmarks" / "results"
# No example repeats three blocks or has the function that checkpointing needs.
_CHANGES = {
    "LAYERS, HEADS, WIDTH = 2, 4, 128": "LAYERS, HEADS, WIDTH = 8, 4, 128",
    "class Transformer(nn.Module):": '''def checkpoint(model: nn.Module) -> None:
    """Let each block compute its activations again in the backward pass."""
    for block in model.blocks:
        block.forward = functools.partial(recomputed, block.forward, use_reentrant=False)


class Transformer(nn.Module):''',
    "import torch\n": "import functools\n\nimport torch\n"
    "from torch.utils.checkpoint import checkpoint as recomputed\n",
}
PLAN = MeasurePlan(block_counts=(4,), block_seconds=0.2, max_seconds=1.0, most_disturbed=2)
_MOST_TOGETHER = 4
# Knobs that the deep transformer is for; the others tell what its parent tells.
_DEEP = ("compile_mode", "compile_dynamic", "compile_scope", "activation_checkpointing")
_MOST_BATCH = 8
_COLD = 2


def main() -> None:
    """Measure what is asked for, and write both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="studies (default: all)")
    parser.add_argument("--knobs", nargs="+", default=[], metavar="KNOB[=VALUE]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "knobs.json")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"no such study: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    turns = [turn for turn in TURNS if turn.is_asked(arguments.knobs)]
    if not turns:
        parser.error(f"no row of the table is {' or '.join(arguments.knobs)}")
    # It would hold the studies' own settings to so many threads.
    os.environ.pop("OMP_NUM_THREADS", None)
    results = KnobResults.read(arguments.out)
    for name in arguments.names or NAMES:
        if arguments.anew:
            results.forget(name, turns)
        own = turns if arguments.knobs or name != DEEP else [t for t in turns if t.knob in _DEEP]
        with tempfile.TemporaryDirectory() as folder:
            measure_in(Path(folder), name, own, arguments.rounds, results)


def measure_in(
    folder: Path, name: str, turns: Sequence[Turn], rounds: int, results: KnobResults
) -> None:
    """Measure the turns of a study with real processes, whose files lie in `folder`."""
    path = workload(name, folder)
    with SubprocessRunner(folder / "inductor") as runner:
        inspected = measure(Study(name, path, runner, folder), turns, rounds, results)
    assert inspected.workload is not None
    scopes = [turn for turn in turns if turn.knob == "compile_scope"]
    seconds = {}
    if rounds and scopes and inspected.workload.repeated_blocks:
        seconds[name] = compile_seconds(path, inspected, folder)
    write_compile_seconds(results.path.with_name("knobs_compile.json"), seconds, results)


def workload(name: str, folder: Path) -> Path:
    """Return the model.py of a study; the deep transformer's is written into `folder`."""
    if name != DEEP:
        return STUDIES / name / "model.py"
    text = (STUDIES / "char_transformer" / "model.py").read_text(encoding="utf-8")
    for old, new in _CHANGES.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / "model.py"
    path.write_text(text, encoding="utf-8")
    return path


@dataclass(frozen=True)
class Study:
    """A workload, what runs its processes, and the folder of their files."""

    name: str
    path: Path
    runner: Runner
    folder: Path

    def timed(
        self, config: TrainingConfig, place: Path, _plan: MeasurePlan, host: str | None, _seed: int
    ) -> Measurement | Failure:
        """Time a configuration in a process of its own, in a round."""
        return self.timed_from(config, place, host)

    def timed_from(
        self, config: TrainingConfig, place: Path, host: str | None
    ) -> Measurement | Failure:
        """Time a configuration in a process of its own."""
        job = Job(Measure(PLAN), "cpu", str(self.path.resolve()), config.as_dict(), host=host)
        return time_in_round(self.runner, job, place)


def measure(study: Study, turns: Sequence[Turn], rounds: int, results: KnobResults) -> Inspected:
    """Time the turns of a study in so many rounds, and write the results after each group."""
    inspected = inspect(study.runner, inspection("cpu", study.path), study.folder / "inspect")
    assert inspected.workload is not None
    own = TrainingConfig.of(inspected.workload.baseline).resolved(inspected.machine)
    results.note(inspected.machine, is_timed=rounds > 0)
    for turn in turns:
        worth = results.of(study.name, turn)
        (worth.obstacle, worth.on_gpu), worth.failure = turn.obstacle(inspected), ""
    results.write()
    for number in range(rounds):
        worths = {turn: results.of(study.name, turn) for turn in turns}
        left = [t for t, worth in worths.items() if len(worth.ratios) <= number]
        left = [turn for turn in left if worths[turn].wants(rounds)]
        for group in groups(left, own):
            add_round(study, {turn: worths[turn] for turn in group}, own, number)
            results.write()
            for turn in group:
                print(
                    f"{study.name}, {turn.label}, round {number + 1}: {worths[turn].cell}",
                    flush=True,
                )
    return inspected


def groups(turns: Iterable[Turn], own: TrainingConfig) -> Iterator[list[Turn]]:
    """Yield turns that share their own side: equal settings, processes started the same way."""
    alike: dict[tuple[TrainingConfig, bool], list[Turn]] = {}
    for turn in turns:
        reference, turned = turn.sides(own)
        alike.setdefault((reference, bool(environ_of(turned))), []).append(turn)
    for found in alike.values():
        yield from (found[i : i + _MOST_TOGETHER] for i in range(0, len(found), _MOST_TOGETHER))


def add_round(study: Study, worths: Mapping[Turn, Worth], own: TrainingConfig, number: int) -> None:
    """Time a group, once more if it was disturbed, and add each ratio or why there is none."""
    folder, turns = study.folder / f"round-{uuid4().hex}", list(worths)
    for turn in turns:
        if turn.frees_memory and worths[turn].batch is None:
            worths[turn].batch = permitted_batch(study, turn, own, folder)
    turned = {t: Participant(str(i), t.sides(own, worths[t].batch)[1]) for i, t in enumerate(turns)}
    reference = Participant("own", turns[0].sides(own)[0])
    course = Course(study.timed, lambda _, run: run.samples_per_second, reference, folder)
    sides = [reference, *turned.values()]
    first = number % len(sides)
    order = [*sides[first:], *sides[:first]]
    for is_last in (False, True):
        timed = play_round(course, order[:: 1 if number % 2 else -1], number)
        disturbed = bool(disturbance_in(timed))
        if is_last or not disturbed:
            break
    for turn, side in turned.items():
        _note_round(worths[turn], course, side, timed, disturbed)
        # The table names no folder of this machine.
        worths[turn].failure = worths[turn].failure.replace(str(study.path), study.path.name)


def _note_round(
    worth: Worth, course: Course, side: Participant, timed: Results, disturbed: bool
) -> None:
    own, run = timed.get(course.baseline.name), timed.get(side.name)
    if isinstance(own, Measurement) and isinstance(run, Measurement):
        slow = course.seconds(course.baseline.config, own)
        worth.ratios.append(round(slow / course.seconds(side.config, run), 4))
        worth.disturbed += disturbed
    elif run is not None and not isinstance(run, Measurement | Lost):
        worth.failure = describe(run)
    elif own is not None and not isinstance(own, Measurement | Lost):
        worth.failure = f"the other side: {describe(own)}"


def permitted_batch(study: Study, turn: Turn, own: TrainingConfig, folder: Path) -> float:
    """Return the largest factor on the batch size that needs no more memory than without it."""
    reference = study.timed_from(turn.sides(own)[0], folder / "memory", None)
    if not isinstance(reference, Measurement):
        return 1.0
    best = 1.0
    while best < _MOST_BATCH:
        run = study.timed_from(turn.sides(own, 2 * best)[1], folder / f"memory-{2 * best:g}", None)
        if not isinstance(run, Measurement) or run.peak_memory_bytes > reference.peak_memory_bytes:
            break
        best *= 2
    return best


def compile_seconds(path: Path, inspected: Inspected, folder: Path) -> dict[str, list[float]]:
    """Return the seconds of compiling, by scope, each time with an empty cache."""
    assert inspected.workload is not None
    own = TrainingConfig.of(inspected.workload.baseline).resolved(inspected.machine)
    seconds: dict[str, list[float]] = {"whole": [], "blocks": []}
    for number in range(_COLD):
        for scope in sorted(seconds, reverse=bool(number % 2)):
            place = folder / f"compile-{number}-{scope}"
            place.mkdir()
            config = own.replace(compile_mode="default", compile_scope=scope)
            with SubprocessRunner(place / "inductor", warm=False) as runner:
                run = Study("", path, runner, place).timed_from(config, place / "trial", None)
            assert isinstance(run, Measurement), run
            seconds[scope].append(run.compile_seconds)
    return seconds


if __name__ == "__main__":
    main()
