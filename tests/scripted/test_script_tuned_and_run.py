"""Scripts as people write them: tuned by a search, then run whole under what it confirmed."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.configuration.best_config import BestConfig, read_best
from autotune.configuration.evidence import UNCHANGED
from autotune.configuration.script import BY_FLAG_ONLY, ScriptOptions, is_harmless
from autotune.knobs import KNOBS
from autotune.knobs.base import spelled
from autotune.process.runner import SubprocessRunner
from autotune.searching.run.events import CandidateRefused, Event, TrialEnded
from autotune.searching.search import search
from children import autotune, nobody_is_left
from hurried_runner import HurriedRunner, decide_after
from needs import installed
from scripted_runner import options_in
from tiers import late

SCRIPTS = Path(__file__).parents[1] / "scripts"
# Seconds for which each sample waits for its disk, so that workers help whatever else goes on.
READ = "0.006"
SPACE = "num_workers: [0, 2]\npersistent_workers: [true]\n"
LONG, SHORT = "100000", "50"
NEEDS = {"plain_loop": None, "hf_trainer": "transformers", "lightning_fit": "lightning"}
# As few as can be: how many decide is shown by test_race.
ROUNDS = 2


@dataclass
class Tuned:
    """A script that was searched, and what became of it under the answer."""

    events: list[Event]
    best: BestConfig
    run: subprocess.CompletedProcess[str]
    folder: Path


@pytest.fixture(scope="module", params=["plain_loop", late("hf_trainer"), late("lightning_fit")])
def tuned(request, tmp_path_factory):
    if needed := NEEDS[request.param]:
        installed(needed)
    folder = tmp_path_factory.mktemp(request.param)
    path = Path(shutil.copy(SCRIPTS / f"{request.param}.py", folder / "train.py"))
    long, short = arguments_of(request.param, folder)
    options = options_in(folder, SPACE, model_path=path, script=ScriptOptions(long), trials=2)
    with pytest.MonkeyPatch.context() as context, SubprocessRunner(folder / "inductor") as runner:
        decide_after(ROUNDS, context.setattr)
        events = list(search(options, HurriedRunner(runner)))
        run = autotune(folder, "run", "best.yaml", "train.py", *short)
    assert run.returncode == 0, run.stderr
    return Tuned(events, read_best(folder / "best.yaml"), run, folder)


def arguments_of(name, folder):
    """Those of a training that a search leaves, and of one that comes to its end soon."""
    if name == "plain_loop":
        read = ("--batch-size", "8", "--read-seconds", READ, "--epochs")
        return (*read, LONG), (*read, "3")
    out = str(folder / "out")
    return (out, LONG, READ), (out, SHORT, READ)


def test_a_search_of_the_script_confirms_what_it_emits(tuned):
    answered = tuned.events[-1]
    assert answered.best == tuned.best
    told = [event for event in tuned.events if isinstance(event, CandidateRefused | TrialEnded)]
    assert tuned.best.config["num_workers"] == 2, "\n".join(map(repr, told))
    assert tuned.best.constraints.accuracy.metric == UNCHANGED
    speedup = tuned.best.evidence.speedup
    assert speedup.rounds >= ROUNDS
    assert speedup.ci95[0] > 1
    assert nobody_is_left(tuned.folder)


def test_the_whole_script_runs_with_the_confirmed_settings(tuned):
    told = [line for line in tuned.run.stderr.splitlines() if line.startswith("autotune: ")]
    own = tuned.best.evidence.baseline.config
    confirmed = {
        f"{name}={spelled(value)}": own[name] not in (None, value, KNOBS[name].default)
        and f" instead of {spelled(own[name])}"
        for name, value in tuned.best.config.items()
        if is_harmless(KNOBS[name]) and name not in BY_FLAG_ONLY and value is not None
        if value != KNOBS[name].default or own[name] != KNOBS[name].default
    }
    replacing = ", ".join(f"{setting}{own or ''}" for setting, own in confirmed.items())
    applied = ", ".join(confirmed)
    assert told == [f"autotune: applying: {replacing}", f"autotune: applied: {applied}"]
    assert re.search(r"^\d+\.\d\d samples/s$", tuned.run.stderr, re.MULTILINE), "to its end"
