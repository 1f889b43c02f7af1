"""An answer as it is told: on stdout, with its reason, its unit, and what is not sure of it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import yaml

from autotune.configuration.best_config import headline, read_best
from autotune.configuration.evidence import Searched
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import TrainingConfig
from autotune.console.lines import answer_lines, profile_lines
from autotune.production import Best
from autotune.searching.run.events import Answered, StagesTimed
from autotune.values.measurement import Noise
from autotune.values.outcome import Diagnosed, Measured, Observed, WorkloadFacts
from children import WORKLOADS
from command_line import command
from factories import best_config, with_not_confirmed, with_not_proven, written
from reporting import OWN, Page, trial
from scripted_runner import (
    ScriptedRunner,
    at,
    batch_of,
    events_of,
    options_in,
    trials_of,
    unstored_in,
)
from shown_search import frame, lines_of
from stored_study import as_page, report, stored

BASELINE = TrainingConfig.of(OWN)
NONE = "of 19 configurations measured, none was faster beyond the noise."
NONE_AS_GOOD = (
    "of 19 configurations measured, none that trains as well was shown to be faster. "
    "1 faster one is not proven to train as well."
)
NOT_AGAIN = (
    "of 19 configurations measured, none was shown to be faster. "
    "1 that was faster in the trials could not be confirmed."
)
NEITHER = f"{NONE_AS_GOOD} 1 that was faster in the trials could not be confirmed."


def kept(measured=19):
    """The answer to keep the settings, after so many configurations."""
    best = best_config(BASELINE, BASELINE)
    searched = Searched(configurations=96, measured=measured, tried={}, never_varied=())
    evidence = best.evidence.model_copy(update={"searched": searched})
    return best.model_copy(update={"evidence": evidence})


@pytest.mark.parametrize(
    ("best", "reason"),
    [
        (kept(), NONE),
        (with_not_proven(kept()), NONE_AS_GOOD),
        (with_not_confirmed(kept()), NOT_AGAIN),
        (with_not_confirmed(with_not_proven(kept())), NEITHER),
    ],
)
def test_every_output_gives_the_same_reason(best, reason, url):
    first, capital = f"Keep your settings: {reason}", f"{reason[0].upper()}{reason[1:]}"
    source = stored(url, [trial(0)], best)
    assert answer_lines(Answered(best, Path("best.yaml")))[0] == first
    assert Best(best).explain().splitlines()[0] == first
    assert first in report(source)
    seen = as_page(source).text
    assert capital in seen
    assert "of 96 configurations" in seen


def test_the_headline_counts_what_was_measured():
    assert "of 1 configuration measured" in headline(kept(1))
    assert "no other configuration was measured" in headline(kept(0))


FASTER, KEPT = "2.00x faster than your settings", "Keep your settings"


@pytest.fixture
def search(tmp_path, monkeypatch):
    """`autotune search` of two batch sizes; `rates` has the samples/s of each."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(WORKLOADS / "plain.py", "model.py")
    written(tmp_path, "batch_size: [8, 64]\n", "space.yaml")

    def searched(faster, *words):
        runner = ScriptedRunner(
            lambda config, _: at(100 if batch_of(config) == 8 else 100 * faster)
        )
        monkeypatch.setattr("autotune.commands.execute.SubprocessRunner", runner)
        return command("search", "model.py", "--space", "space.yaml", "--trials", "2", *words)

    return searched


@pytest.mark.parametrize("mode", ["auto", "rich", "plain", "none"])
@pytest.mark.parametrize(("faster", "headline"), [(2.0, FASTER), (0.5, KEPT)])
def test_every_display_leaves_the_answer_to_stdout(search, mode, faster, headline):
    done = search(faster, "--progress", mode)
    assert done.code == 0, done.err
    assert done.out.startswith(headline)
    assert "written to" in done.out
    assert headline not in done.err
    assert ("best so far" in done.err) == (mode != "none")
    assert "best so far" not in done.out


@pytest.mark.parametrize("mode", ["plain", "none"])
def test_json_alone_is_on_stdout_where_it_was_asked_for(search, mode):
    done = search(2.0, "--json", "--progress", mode)
    told = json.loads(done.out)
    assert told["answer"] == "faster"
    assert told["seconds"] >= 0
    assert (FASTER in done.err) == (mode != "none")


SPACE = "env:\n  FOO: {values: [null, '1'], effect: exact}\nnum_workers: [0, 2]\n"
TOLD = "  unread      env FOO=1: nothing read it back"


def answered(folder, name):
    """The lines and the file of a search in which this setting is what makes it faster."""
    runner = ScriptedRunner(lambda config, _: at(200 if config[name] else 100))
    last = events_of(unstored_in(folder, SPACE, trials=4), runner)[-1]
    return answer_lines(last), read_best(last.path)


@pytest.mark.parametrize(("name", "is_told"), [("env.FOO", True), ("num_workers", False)])
def test_a_variable_of_the_answer_is_said_to_be_unproven(name, is_told, tmp_path):
    lines, best = answered(tmp_path, name)
    assert bool(best.config[name])
    assert (TOLD in lines) == is_told
    assert (TOLD in Best(best).explain().splitlines()) == is_told
    assert best.evidence.not_read_back == (("env.FOO",) if is_told else None)
    assert ("not_read_back" in (tmp_path / "best.yaml").read_text()) == is_told


def under_a_quota(*batch_sizes):
    """Larger batches are faster, and processes of these sizes cannot see what others use."""

    def script(config, phase):
        run = at(10 * batch_of(config)).measurement
        if batch_of(config) in batch_sizes:
            unwatched = (replace(block, noise=Noise(watched=False)) for block in run.blocks)
            run = replace(run, blocks=tuple(unwatched))
        return Measured(run)

    return ScriptedRunner(script)


@pytest.mark.parametrize("batch_sizes", [(8, 64), (8,), (64,)])
def test_the_answer_does_not_count_what_nobody_watched(batch_sizes, tmp_path):
    runner = under_a_quota(*batch_sizes)
    events = events_of(unstored_in(tmp_path, space="batch_size: [8, 64]\n"), runner)
    blocks = events[-1].best.evidence.blocks
    assert blocks.timed > 0
    assert blocks.disturbed is None
    written = yaml.safe_load(events[-1].path.read_text(encoding="utf-8"))
    assert "disturbed" not in written["evidence"]["blocks"]
    assert read_best(events[-1].path) == events[-1].best


def test_a_trial_says_that_nobody_watched_it(tmp_path):
    runner = under_a_quota(64)
    events = events_of(unstored_in(tmp_path, space="batch_size: [8, 64]\n"), runner)
    trials = trials_of(events)
    timed = [(batch_of(trial.config), trial.details.measurement) for trial in trials]
    told = {size: (run.disturbed_blocks, run.flags) for size, run in timed}
    assert told == {8: (0, ()), 64: (None, ("unwatched",))}


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
UNIT = "steps/s"


@pytest.fixture
def events(tmp_path):
    """A search in which one thread is twice as fast."""
    options = options_in(tmp_path, "num_threads: [1, 2]\n", script=ScriptOptions(()), trials=3)
    runner = ScriptedRunner(
        lambda config, _: at(200 if config["num_threads"] == 1 else 100), observed=SEEN
    )
    return events_of(options, runner)


def test_every_output_of_a_search_that_counts_steps_says_so(events, tmp_path):
    answered = events[-1]
    assert isinstance(answered, Answered), answered
    url = f"sqlite:///{tmp_path / 'study.db'}"
    timed = next(event for event in events if isinstance(event, StagesTimed))
    study = optuna.load_study(study_name="scripted", storage=url)
    outputs = {
        "plain lines": "\n".join(lines_of(events)),
        "board": frame(events, width=120),
        "report": report(url),
        "page": Page(report(url, "--html", "-").partition('aria-labelledby="yaml"')[0]).text,
        "metric of the study": " ".join(study.metric_names or ()),
        "production": Best(answered.best).explain(),
        "profile": "\n".join(profile_lines(replace(timed.diagnosis, reached=1.0), [], [])),
    }
    assert {name for name, text in outputs.items() if UNIT not in text} == set()
    assert {name for name, text in outputs.items() if "samples/s" in text} == set()


def test_a_study_without_an_answer_knows_its_unit(events, tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.load_study(study_name="scripted", storage=url)
    study.set_user_attr("answer", None)
    (tmp_path / "best.yaml").unlink()
    told = report(url)
    assert UNIT in told
    assert "samples/s" not in told
