"""Studies to report on: made up trial by trial, and one that a whole scripted search made."""

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.configuration.constraints import Verdict
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.report.data import ReportData
from autotune.searching.run.search_run import details_of
from autotune.study.archive import Archive
from autotune.study.facts import FinishedTrial, StudyFacts, TrialDetails
from autotune.values.outcome import Crashed, Diagnosed, Loading, Measured, OutOfMemory, TrialOutcome
from factories import GIB, measurement
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in
from study_factories import HOLDS

OWN: dict[str, Value] = {"batch_size": 16, "num_threads": 2}
SPACE = """\
batch_size: [8, 16, 32, 64]
num_workers: [0, 2]
amp_dtype: [null, bfloat16]
"""
STAGES = Diagnosed(
    batch_size=8,
    compute_seconds=0.07,
    double_compute_seconds=0.1,
    transfer_seconds=0.0,
    loading=(Loading(0, 0.03), Loading(2, 0.015)),
    optimizer_seconds=0.02,
)
RATES = {8: 100.0, 16: 170.0, 32: 290.0, 64: 300.0}


def trial(
    number: int,
    value: float | None = 100.0,
    margins: dict[str, float] | None = None,
    reason: str = "",
    **settings: Value,
) -> FinishedTrial:
    """A trial with this value and these changes to the user's own settings."""
    config = TrainingConfig.of({**OWN, **settings})
    details = TrialDetails(outcome="crashed", seconds=2.0)
    if value is not None:
        details = details_of(Measured(measurement(value)), 2.0)
    return FinishedTrial(number, config, Verdict(value, margins or HOLDS, reason), details)


def report_of(
    trials: Sequence[FinishedTrial] = (), best: BestConfig | None = None, **parts: Any
) -> ReportData:
    """A report on these trials; `parts` are fields of the archive, `notes` as they are on disk."""
    given = {"name": "made up", "storage": "nowhere", "finished": tuple(trials), **parts}
    given["notes"] = StudyFacts(parts.get("notes"))
    return ReportData(Archive(**given), best)


def law(config: TrainingConfig, phase: str) -> TrialOutcome:
    """Large batches are fast, bfloat16 is faster; some crash, some take too much memory."""
    batch, half = batch_of(config), config["amp_dtype"] is not None
    if batch == 64 and not half:
        return OutOfMemory("device", "64 samples do not fit", 9 * GIB)
    if batch == 32 and config["num_workers"]:
        return Crashed("killed by SIGSEGV")
    rate = RATES[batch] * (1.5 if half else 1.0) * (0.9 if config["num_workers"] else 1.0)
    return Measured(measurement(rate, GIB * batch // 16)) if batch < 32 else at(rate)


def searched(folder: Path, **options: Any) -> Path:
    """The folder of a search of all but one configuration, with a trial of each kind."""
    runner = ScriptedRunner(
        law, quality=lambda config, seed: 0.5 if batch_of(config) == 64 else 0.9, diagnosed=STAGES
    )
    events_of(options_in(folder, SPACE, **{"trials": 16, **options}), runner)
    return folder


class Page(HTMLParser):
    """A page as a browser would see it: elements with attributes, and the text between them."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.styles: list[str] = []
        self._within = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._within = tag

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        (self.styles if self._within == "style" else self.words).append(data)

    @property
    def text(self) -> str:
        """All words."""
        return "".join(self.words)

    def attributes(self, name: str) -> list[str]:
        """The values of an attribute, wherever it stands."""
        return [attrs[name] for _, attrs in self.elements if name in attrs]
