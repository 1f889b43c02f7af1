"""A runner that answers at once, from functions of the configuration, and remembers what was asked.

With it a whole search takes milliseconds, and its measurements are known beforehand.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from autotune.configuration import job as tasks
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import SearchOptions
from autotune.knobs.base import Value
from autotune.searching.run.events import Event, Noted, TrialEnded
from autotune.searching.search import search
from autotune.study.facts import FinishedTrial
from autotune.values import outcome as outcomes
from databases import empty_database
from factories import StandIn, cpu_machine, measurement, written

Phase = Literal[
    "inspection",
    "observation",
    "first steps",
    "diagnosis",
    "baseline",
    "trial",
    "gate",
    "accuracy",
    "anchor",
    "again",
    "confirmation",
    "arithmetic",
]
FACTS = outcomes.WorkloadFacts(
    dataset_samples=10_000,
    image_batches=False,
    optimizer_options=True,
    has_evaluate=True,
    baseline={"batch_size": 8},
)
LOSSES = outcomes.FirstLosses(
    (2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1), backwards_per_step=1.0, moves=(0.3, 0.4)
)
"""A script's first steps, as they are by default."""
SEEN_SETTINGS: dict[str, Value] = {"batch_size": 16, "num_workers": 0, "num_threads": 2}
SEEN = outcomes.Observed(
    device="cpu",
    loaders=("train.py:9#0",),
    training_loader="train.py:9#0",
    steps_per_second=50.0,
    samples_per_second=800.0,
    wait_share=0.4,
    fixed={},
    workload=outcomes.WorkloadFacts(10_000, False, True, False, SEEN_SETTINGS, 18),
)
"""What the observed run of a made-up script with one loader and no loss told."""
BATCHES = "batch_size: [8, 16, 32, 64, 128]\n"


def batch_of(config: TrainingConfig) -> int:
    """The batch size as a number."""
    return int(config["batch_size"] or 0)


def at(samples_per_second: float) -> outcomes.Measured:
    """Measured without noise at this rate."""
    return outcomes.Measured(measurement(samples_per_second))


def in_proportion(config: TrainingConfig, phase: str) -> outcomes.Measured:
    """Twice the batch, twice the throughput."""
    return at(10 * batch_of(config))


def agreeing(**changes: float) -> outcomes.Gated:
    """A gate that found nothing but rounding, less what a test changes."""
    nothing = outcomes.Gated(
        loss_error=0.0,
        gradient_error=1e-6,
        update_error=0.0,
        path_error=1e-4,
        reach_error=1e-5,
        buffer_error=1e-5,
        reference_loss_error=0.0,
        reference_gradient_error=1e-6,
        rounding_path_error=1e-4,
        rounding_reach_error=1e-5,
        rounding_buffer_error=1e-5,
        seed_spread=0.0,
        batch_spread=0.5,
        in_double=True,
    )
    return replace(nothing, **changes)


_PHASES: dict[type, Phase] = {
    tasks.Inspect: "inspection",
    tasks.Observe: "observation",
    tasks.TakeFirstSteps: "first steps",
    tasks.Probe: "accuracy",
    tasks.Gate: "gate",
    tasks.CountFlops: "arithmetic",
    tasks.Diagnose: "diagnosis",
}


@dataclass(frozen=True)
class Asked:
    """One job that came, in the words of a test."""

    phase: Phase
    batch_size: int | None
    seeds: tuple[int, ...]
    folder: Path


@dataclass
class ScriptedRunner(StandIn):
    """By default every sample takes equally long and every model becomes equally good."""

    measure: Callable[[TrainingConfig, Phase], outcomes.TrialOutcome] = lambda config, phase: at(
        100
    )
    quality: Callable[[TrainingConfig, int], float] = lambda config, seed: 0.9
    gate: Callable[[TrainingConfig], outcomes.TrialOutcome] = lambda config: agreeing()
    diagnosed: outcomes.TrialOutcome = field(default_factory=lambda: outcomes.Lost("not scripted"))
    """Without a diagnosis, nothing is left out of the search."""
    inspected: outcomes.TrialOutcome = field(
        default_factory=lambda: outcomes.Inspected(cpu_machine(), FACTS)
    )
    observed: outcomes.TrialOutcome = field(default_factory=lambda: outcomes.Lost("not scripted"))
    first_steps: Callable[[TrainingConfig], outcomes.TrialOutcome] = lambda config: LOSSES
    counts: Callable[[tasks.CountFlops], outcomes.TrialOutcome] = lambda task: (
        outcomes.CountedFlops()
    )
    untrained: float | None = None
    """The baseline's quality before training, where a probe asks for it."""
    seed_seconds: float = 1.0
    """Seconds that an accuracy probe takes for each seed."""
    instead: Callable[[tasks.Job, outcomes.TrialOutcome], outcomes.TrialOutcome] = (
        lambda job, outcome: outcome
    )
    """What a process that breaks gives in place of its outcome."""
    jobs: list[tasks.Job] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def run(self, job: tasks.Job, folder: Path) -> outcomes.TrialOutcome:
        """The outcome that the script has for this job."""
        return self.instead(job, self._scripted(job, folder))

    def _scripted(self, job: tasks.Job, folder: Path) -> outcomes.TrialOutcome:
        self.jobs.append(job)
        config = None if job.config is None else TrainingConfig.of(job.config)
        seeds = job.task.seeds if isinstance(job.task, tasks.Probe) else ()
        phase = _phase(job, folder)
        batch_size = None if config is None else batch_of(config)
        self.asked.append(Asked(phase, batch_size, seeds, folder))
        match job.task:
            case tasks.Inspect():
                return self.inspected
            case tasks.Measure():
                return self.measure(config, phase)
            case tasks.Probe():
                qualities = tuple(self.quality(config, seed) for seed in seeds)
                untrained = self.untrained if job.task.untrained else None
                return outcomes.Probed(qualities, self.seed_seconds * len(seeds), untrained)
            case tasks.Gate():
                return self.gate(config)
            case tasks.CountFlops():
                return self.counts(job.task)
            case tasks.Diagnose():
                return self.diagnosed
            case tasks.Observe():
                return self.observed
            case tasks.TakeFirstSteps():
                return self.first_steps(config)

    def batches(self, phase: Phase) -> list[int | None]:
        """The batch sizes that were asked for in a phase, in order."""
        return [asked.batch_size for asked in self.asked if asked.phase == phase]

    def probes(self) -> list[tuple[int | None, tuple[int, ...]]]:
        """Batch size and seeds of each accuracy probe, in order."""
        return [(a.batch_size, a.seeds) for a in self.asked if a.phase == "accuracy"]


def options_in(folder: Path, space: str = BATCHES, **changes: Any) -> SearchOptions:
    """A search of a study in `folder`, for five batch sizes; its model.py is never run."""
    model = folder / "model.py"
    if not model.exists():
        written(folder, "# trains\n", "model.py")
    database = folder / "study.db"
    if not database.exists() and "storage" not in changes:
        empty_database(database)
    options = SearchOptions.of(
        model_path=model,
        study="scripted",
        storage=f"sqlite:///{database}",
        folder=folder,
        out=folder / "best.yaml",
        space=str(written(folder, space)),
        trials=5,
    )
    return changed(options, **changes)


def unstored_in(folder: Path, space: str = BATCHES, **changes: Any) -> SearchOptions:
    """The same with a study in memory, which ends with the search: fifteen times as fast.

    Not for a test with two searches of one study: the second would find nothing, and say nothing.
    """
    return options_in(folder, space, **{"storage": None, **changes})


def changed(options: SearchOptions, **changes: Any) -> SearchOptions:
    """These options, but for those that flat names give."""
    return SearchOptions.of(**{**options.flat(), **changes})


def events_of(options: SearchOptions, runner: ScriptedRunner) -> list[Event]:
    """Everything that a search yields."""
    return list(search(options, runner))


def trials_of(events: Iterable[Event]) -> list[FinishedTrial]:
    """The trials that ended, your own settings first."""
    return [event.trial for event in events if isinstance(event, TrialEnded)]


def left_out(events: Iterable[Event]) -> list[str]:
    """Return what a search said that it does not try."""
    told = [event.text.partition("left out: ") for event in events if isinstance(event, Noted)]
    return [what for _, mark, what in told if mark]


def _phase(job: tasks.Job, folder: Path) -> Phase:
    if type(job.task) in _PHASES:
        return _PHASES[type(job.task)]
    if "confirm" in folder.parts:
        return "confirmation"
    if "anchors" in folder.parts:
        return "anchor"
    if "again" in folder.parts:
        return "again"
    return "baseline" if "0000" in folder.parts else "trial"
