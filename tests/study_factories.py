"""Studies in tests: open one, tell it trials, and make finished trials without one.

Tests build studies with these functions alone, so that a moved module is mended here.
"""

from typing import Any

from optuna.samplers import BaseSampler

from autotune.comparison.rounds import PairedComparison
from autotune.configuration.constraints import THROUGHPUT, Verdict
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.report.data import ReportData, read_report
from autotune.study.archive import find_study
from autotune.study.facts import FinishedTrial, TrialDetails
from autotune.study.study import TuningStudy, open_study
from factories import measurement

HOLDS = {"memory": -0.5, "accuracy": -0.01, "ran": -1.0}
OVER_MEMORY = {"memory": 0.25, "accuracy": 0.5, "ran": -1.0}
OOM = {"memory": 0.2, "accuracy": 0.0, "ran": 0.0}
CRASHED = {"memory": 0.0, "accuracy": 0.0, "ran": 1.0}
SMALL = TrainingConfig.of({"batch_size": 8})

# Batch sizes, without workers or with two and either factor: 3 x (1 + 2) configurations.
NINE = "batch_size: [16, 32, 64]\nnum_workers: [0, 2]\nprefetch_factor: [2, 4]\n"


def study_of(
    space: SearchSpace, *values: float, sampler: BaseSampler | str = "RandomSampler"
) -> TuningStudy:
    """Return a study in memory that was told feasible trials of these values."""
    study = open_study("s", None, space, THROUGHPUT)
    study.use_sampler(sampler, seed=0)
    for value in values:
        tell(study, value, HOLDS)
    return study


def opened(
    url: str, space: SearchSpace, sampler: BaseSampler | str = "RandomSampler"
) -> TuningStudy:
    """Open the study `s` of a database, or create it."""
    study = open_study("s", url, space, THROUGHPUT)
    study.use_sampler(sampler, seed=0)
    return study


def reported(url: str) -> ReportData:
    """Return what a report reads of the only study in a database."""
    return read_report(find_study(url))


def tell(
    study: TuningStudy, value: float | None, margins: dict[str, float], **details: Any
) -> TrainingConfig:
    """Ask for a configuration and tell this verdict on it; by default it took 1.5 s."""
    number, config = study.ask()
    finish(study, number, value, margins, "why", **{"seconds": 1.5, **details})
    return config


def finish(
    study: TuningStudy,
    number: int,
    value: float | None,
    margins: dict[str, float] = HOLDS,
    reason: str = "",
    **details: Any,
) -> FinishedTrial:
    """Tell the verdict on a trial that was asked for, and these fields of its details."""
    return study.tell(number, Verdict(value, margins, reason), TrialDetails(**details))


def add(
    study: TuningStudy,
    config: TrainingConfig,
    value: float | None,
    margins: dict[str, float] = HOLDS,
    **details: Any,
) -> FinishedTrial:
    """Add a trial that nobody asked for."""
    return study.add(config, Verdict(value, margins), TrialDetails(**details))


def trial(
    number: int,
    value: float | None = 100.0,
    margins: dict[str, float] = HOLDS,
    reason: str = "",
    config: TrainingConfig = SMALL,
    **details: Any,
) -> FinishedTrial:
    """Return a finished trial of no study, with these fields of its details."""
    return FinishedTrial(number, config, Verdict(value, margins, reason), TrialDetails(**details))


def rounds(*ratios: float) -> PairedComparison:
    """Return a comparison with the baseline that found these ratios, a round each."""
    run, found = measurement(), PairedComparison(confidence=0.95)
    for ratio in ratios:
        found = found.after(run, run, (ratio, 1.0))
    return found
