"""Tasks put to scripts of `tests/scripts`, each in a child of its own."""

from dataclasses import replace
from pathlib import Path

from autotune.configuration.job import Job, Observe, Task
from autotune.configuration.script import Script
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.process.runner import Runner, SubprocessRunner
from autotune.values.outcome import Observed, TrialOutcome, UserError
from children import ended_as

SCRIPTS = Path(__file__).parent / "scripts"
LOADER = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "num_threads")
LONG = ("--epochs", "10000")


class InTwo:
    """Runs jobs in two processes, started by torch's launcher."""

    def __init__(self, runner: SubprocessRunner, deadline_seconds: float = 180.0) -> None:
        self._runner = runner
        self._deadline_seconds = deadline_seconds

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        job = replace(job, processes=2, deadline_seconds=self._deadline_seconds)
        return self._runner.run(job, folder)


class Ask:
    """Puts a task to a script and gives the outcome."""

    def __init__(self, runner: Runner, folder: Path, deadline_seconds: float = 180.0) -> None:
        self.runner = runner
        self.folder = folder
        self.deadline_seconds = deadline_seconds
        self.own: dict[str, Value] = {}
        """Settings of the untouched script."""
        self.learning_rates: tuple[float, ...] = ()
        """Rates that the optimizer's groups must have; empty for any."""

    def __call__(
        self,
        script: str,
        *arguments: str,
        task: Task | None = None,
        settings: dict[str, Value] | None = None,
        asked: tuple[str, ...] = LOADER,
        metric: str | None = None,
        by_flag: tuple[str, ...] = (),
    ) -> TrialOutcome:
        config = TrainingConfig.of({"num_threads": 1, **(settings or {})})
        job = Job(
            task or Observe(),
            device="cpu",
            model_path=str(SCRIPTS / script),
            script=Script(
                *(arguments, asked if settings else (), metric, by_flag, self.own),
                learning_rates=self.learning_rates,
            ),
            config=None if settings is None else config.as_dict(),
            deadline_seconds=self.deadline_seconds,
        )
        return self.runner.run(job, self.folder)


def observed(outcome: TrialOutcome) -> Observed:
    return ended_as(Observed, outcome)


def reason(outcome: TrialOutcome) -> str:
    return ended_as(UserError, outcome).detail
