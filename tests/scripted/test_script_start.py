"""A search of a script says how much of its time the script's start took."""

import json
import time
from dataclasses import dataclass, field, replace

import pytest

import scripted_runner
from autotune.configuration.answer_words import start_text
from autotune.configuration.job import Measure
from autotune.configuration.script import ScriptOptions
from autotune.console.answer_lines import answer_lines, result
from autotune.report.data import read_report
from autotune.report.terminal import after_table
from autotune.searching.run.events import Answered
from autotune.study.archive import find_study
from autotune.values.outcome import Measured
from factories import measurement
from scripted_runner import ScriptedRunner, events_of, options_in
from search_clock import use_clock

SPACE = "num_workers: [0, 2]\n"
SEEN = replace(scripted_runner.SEEN, start_seconds=4.0)


@dataclass
class SlowToStart(ScriptedRunner):
    """Each process takes ten seconds, and three of them until it trains."""

    now: float = field(default_factory=time.monotonic)

    def run(self, job, folder):
        self.now += 10.0
        return super().run(job, folder)


def starting(config, phase):
    return Measured(replace(measurement(100), start_seconds=1.0, build_seconds=2.0))


def searched(folder, monkeypatch, script, seen=SEEN):
    runner = SlowToStart(starting, observed=seen)
    use_clock(monkeypatch, lambda: runner.now)
    options = options_in(folder, SPACE, script=script, trials=2)
    answered = events_of(options, runner)[-1]
    assert isinstance(answered, Answered)
    return runner, answered


def test_answer_and_report_say_how_much_of_the_search_was_start(tmp_path, monkeypatch):
    runner, answered = searched(tmp_path, monkeypatch, ScriptOptions(()))
    timings = sum(isinstance(job.task, Measure) for job in runner.jobs)
    started = 4.0 + 3.0 * timings
    # A search begins by the real clock, a moment after the runner was made.
    assert answered.script_start == (pytest.approx(10.0 * len(runner.jobs), abs=5.0), started)
    said = next(line for line in answer_lines(answered) if line.startswith("  time "))
    assert answered.script_start is not None
    assert said.endswith(start_text(answered.script_start))
    as_json = json.loads(result(answered))
    assert as_json["script_start_seconds"] == started
    report = read_report(find_study(str(tmp_path)))
    text = said.removeprefix("  time        ")
    assert f"  {text}" in after_table(report, len(report.trials))


def test_a_model_py_has_no_such_start(tmp_path, monkeypatch):
    _, answered = searched(tmp_path, monkeypatch, None)
    assert answered.script_start is None
    assert not [line for line in answer_lines(answered) if line.startswith("  time ")]
    assert read_report(find_study(str(tmp_path))).script_start is None


def test_the_answer_names_settings_that_are_the_script_s_own(tmp_path, monkeypatch):
    seen = replace(SEEN, fixed={"num_threads": "the script sets it itself"})
    _, answered = searched(tmp_path, monkeypatch, ScriptOptions(()), seen)
    own = answered.best.evidence.baseline.config["num_threads"]
    told = f"  not varied  num_threads={own}: the script sets it itself"
    assert told in answer_lines(answered)
