"""Every output is in steps/s if nothing tells the samples of a script's step."""

from dataclasses import replace

import optuna
import pytest

from autotune.configuration.script import ScriptOptions
from autotune.console.tables import show_profile
from autotune.production import Best
from autotune.searching.run.events import Answered, StagesTimed, TrialEnded
from autotune.values.outcome import Diagnosed, Observed, Profiled, WorkloadFacts
from reporting import Page
from scripted_runner import ScriptedRunner, at, events_of, options_in
from shown_search import frame, lines_of
from stored_study import report

NO_LOADER = "no torch DataLoader feeds training"
SEEN = Observed(
    device="cpu",
    loaders=(),
    training_loader="",
    steps_per_second=100.0,
    samples_per_second=100.0,
    wait_share=0.0,
    counts_samples=False,
    fixed={"num_workers": NO_LOADER, "batch_size": "nothing tells the samples of a step"},
    workload=WorkloadFacts(None, False, True, False, {"batch_size": 1, "num_threads": 2}, 18),
    stages=Diagnosed(1, 0.01, None, 0.0, (), 0.002),
)
TOLD = "steps/s"


@pytest.fixture
def events(tmp_path):
    """A search in which one thread is twice as fast."""
    options = options_in(tmp_path, "num_threads: [1, 2]\n", script=ScriptOptions(()), trials=3)
    runner = ScriptedRunner(
        lambda config, _: at(200 if config["num_threads"] == 1 else 100), observed=SEEN
    )
    return events_of(options, runner)


def test_every_output_of_a_search_that_counts_steps_says_so(events, tmp_path, capsys):
    answered = events[-1]
    assert isinstance(answered, Answered), answered
    url = f"sqlite:///{tmp_path / 'study.db'}"
    timed = next(event for event in events if isinstance(event, StagesTimed))
    study = optuna.load_study(study_name="scripted", storage=url)
    show_profile(timed.diagnosis, [], Profiled(()))
    outputs = {
        "plain lines": "\n".join(lines_of(events)),
        "board": frame(events, width=120),
        "report": report(url),
        "page": Page(report(url, "--html", "-").partition('aria-labelledby="yaml"')[0]).text,
        "metric of the study": " ".join(study.metric_names or ()),
        "production": Best(answered.best).explain(),
        "profile": capsys.readouterr().out,
    }
    assert {name for name, text in outputs.items() if TOLD not in text} == set()
    assert {name for name, text in outputs.items() if "samples/s" in text} == set()


def test_a_study_without_an_answer_knows_its_unit(events, tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.load_study(study_name="scripted", storage=url)
    study.set_user_attr("answer", None)
    (tmp_path / "best.yaml").unlink()
    told = report(url)
    assert TOLD in told
    assert "samples/s" not in told


def test_samples_are_told_where_they_are_known(tmp_path):
    options = options_in(tmp_path, "num_threads: [1, 2]\n", script=ScriptOptions(()), trials=3)
    seen = replace(SEEN, counts_samples=True)
    found = events_of(options, ScriptedRunner(observed=seen))
    assert any(isinstance(event, TrialEnded) for event in found)
    assert "samples/s" in report(f"sqlite:///{tmp_path / 'study.db'}")
