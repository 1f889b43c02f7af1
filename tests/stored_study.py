"""Studies on the disk as a search leaves them, made trial by trial, and the reports on them.

Trial 1 of an `answered` one was confirmed.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState, create_trial

from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import TrainingConfig
from autotune.report.data import ReportData, read_report
from autotune.study.archive import OpenTrial, find_study
from autotune.study.facts import FORMAT, Answer, FinishedTrial
from autotune.study.study import TuningStudy, open_study
from command_line import command
from factories import best_config, cpu_machine, narrowed, written
from reporting import OWN, Page, trial
from study_factories import NINE, THROUGHPUT

_STATES = {"lost": TrialState.FAIL, "running": TrialState.RUNNING}


def lost(number: int, reason: str = "", config: TrainingConfig | None = None) -> OpenTrial:
    """A trial that an interruption ended; without a configuration, before one was chosen."""
    return OpenTrial(number, "lost", config, reason)


def running(number: int, config: TrainingConfig | None = None) -> OpenTrial:
    """A trial that some process runs."""
    return OpenTrial(number, "running", config, "")


def stored(
    url: str,
    trials: Iterable[FinishedTrial | OpenTrial] = (),
    best: BestConfig | None = None,
    name: str = "made up",
    **notes: Any,
) -> str:
    """The URL of a storage, to which a study of these trials is added.

    A study of that name is continued. Notes are attributes of the study, as on the disk.
    """
    folder = Path(url.removeprefix("sqlite:///")).parent
    space = narrowed(written(folder, NINE, "nine.yaml"), cpu_machine(), {"batch_size": 16})
    study = open_study(name, url, space, THROUGHPUT)
    of_optuna = optuna.load_study(study_name=name, storage=url)
    for number, one in enumerate(trials, len(of_optuna.trials)):
        assert one.number == number, "as it will be"
        if isinstance(one, OpenTrial):
            _begin(study, of_optuna, one)
        else:
            study.add(one.config, one.verdict, one.details)
    if best is not None:
        study.notes.answer = Answer(len(study.finished()), best)
    study.disconnect()
    if isinstance(identity := notes.get("identity"), dict):
        notes["identity"] = {"facts": {"format": FORMAT, **identity}}
    for key, value in notes.items():
        of_optuna.set_user_attr(key, value)
    return url


def _begin(study: TuningStudy, of_optuna: optuna.Study, trial: OpenTrial) -> None:
    """Leave a trial without a verdict, as a search does."""
    if trial.config is None:  # the search ended before it chose one
        facts = {"reason": trial.reason} if trial.reason else {}
        of_optuna.add_trial(create_trial(state=_STATES[trial.state], user_attrs=facts))
        return
    number, _ = study.ask(trial.config)
    if trial.state == "lost":
        study.lose(number, trial.reason)


def read(source: object, name: str | None = None) -> ReportData:
    """The data of the report on a study, named as by a person."""
    return read_report(find_study(str(source)), name)


def report(source: object, *flags: object) -> str:
    """Return what `autotune report` prints of a study."""
    done = command("report", source, *flags)
    assert (done.code, done.err) == (0, ""), done
    return done.out


def as_json(source: object) -> dict[str, Any]:
    """The report for programs."""
    data: dict[str, Any] = json.loads(report(source, "--json", "-"))
    return data


def as_page(source: object) -> Page:
    """The report for a browser."""
    return Page(report(source, "--html", "-"))


def as_rows(source: object) -> Sequence[Mapping[str, str]]:
    """The report's table, a mapping from column to cell for each trial."""
    return list(csv.DictReader(io.StringIO(report(source, "--csv", "-"))))


BASELINE = TrainingConfig.of(OWN)
FASTER = {"amp_dtype": "bfloat16"}
TRIALS = [trial(0), trial(1, 160.0, **FASTER)]


def confirmed(number: int = 1) -> BestConfig:
    """Return the answer that a trial was confirmed at 1.5 times."""
    best = best_config(BASELINE.replace(**FASTER), BASELINE)
    found = best.provenance.model_copy(update={"trial": number})
    return best.model_copy(update={"provenance": found})


def answered(url: str, *others: Any, **notes: Any) -> str:
    """Store a study whose trial 1 was confirmed, and return its URL."""
    return stored(url, [*TRIALS, *others], confirmed(), **notes)
