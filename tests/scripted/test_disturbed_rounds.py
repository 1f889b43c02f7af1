"""A timing that other programs disturbed is no evidence while it can be repeated."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import pytest
import yaml

from autotune.configuration.best_config import read_best
from autotune.console.lines import void_line
from autotune.searching.run.events import CandidateRefused, RoundVoid, StepStarted
from autotune.values.measurement import Noise
from autotune.values.outcome import Measured
from clockwork import Clock
from scripted_runner import Phase, ScriptedRunner, at, batch_of, events_of, options_in, unstored_in
from search_clock import use_clock
from shown_search import lines_of
from stored_study import as_json, read, report

TWO = "batch_size: [8, 16]\n"
NEIGHBOUR = Noise(foreign=0.49)


def beside(noise, samples_per_second):
    """Measured at this rate, with the same noise in each block."""
    run = at(samples_per_second).measurement
    return Measured(replace(run, blocks=tuple(replace(b, noise=noise) for b in run.blocks)))


@dataclass
class Neighbour:
    """Batches of 16 are 1.6 times as fast; some timings of theirs in a phase are disturbed."""

    disturbed: Callable[[int], bool]
    """By how often the phase timed the settings of that size before."""
    shows: float = 18.0
    noise: Noise = NEIGHBOUR
    phase: Phase = "confirmation"
    size: int = 16
    timed: int = 0

    def __call__(self, config, phase):
        if phase == self.phase and batch_of(config) == self.size:
            self.timed += 1
            if self.disturbed(self.timed - 1):
                return beside(self.noise, self.shows)
        return at(160.0 if batch_of(config) == 16 else 100.0)


def searched(folder, neighbour):
    runner = ScriptedRunner(neighbour)
    return runner, events_of(options_in(folder, TWO), runner)


def answer_in(events):
    return events[-1].best


def test_rounds_beside_another_program_are_repeated_and_the_candidate_is_confirmed(tmp_path):
    runner, events = searched(tmp_path, Neighbour(lambda number: number in (1, 2)))
    speedup = answer_in(events).evidence.speedup
    assert answer_in(events).config["batch_size"] == 16
    assert (speedup.ratio, speedup.rounds) == (1.6, 4)
    assert (speedup.disturbed_rounds, speedup.repeated_rounds) == (0, 2)
    folders = [asked.folder for asked in runner.asked if asked.phase == "confirmation"]
    assert len(set(folders)) == 2 * (4 + 2), "those that were void stay on the disk"
    lines = lines_of(events)
    assert lines.count(void_line(2, "other programs used 49 % of the cores")) == 2
    assert any("(1.60 to 1.60, 4 rounds)" in line for line in lines)


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (Noise(stolen=0.2), "the host withheld 20 % of the cores"),
        (Noise(stopped=1), "the process was stopped and continued"),
        (Noise(gpu="thermal"), "GPU: thermal"),
        (Noise(stopped=1, watched=False), "the process was stopped and continued"),
    ],
)
def test_every_kind_of_disturbance_makes_a_round_void(noise, words, tmp_path):
    _, events = searched(tmp_path, Neighbour(lambda number: number == 0, noise=noise))
    voids = [event for event in events if isinstance(event, RoundVoid)]
    assert [event.disturbance for event in voids] == [words]
    assert answer_in(events).evidence.speedup.rounds == 4


def test_it_is_the_noise_that_decides_and_not_the_rate(tmp_path):
    _, lucky = searched(tmp_path, Neighbour(lambda number: number == 0, shows=900.0))
    assert answer_in(lucky).evidence.speedup.ci95 == (1.6, 1.6), "a good round is void as well"
    slow = Neighbour(lambda number: number in (1, 2, 3), noise=Noise(foreign=0.05))
    _, events = searched(tmp_path / "calm", slow)
    assert not [event for event in events if isinstance(event, RoundVoid)]
    assert answer_in(events).keeps_baseline, "what nothing disturbed counts"


def test_no_round_is_void_if_disturbance_cannot_be_measured(tmp_path):
    neighbour = Neighbour(lambda _: True, shows=160.0, noise=Noise(watched=False))
    runner, events = searched(tmp_path, neighbour)
    assert len(runner.batches("confirmation")) == 2 * 4
    assert answer_in(events).evidence.speedup.disturbed_rounds is None


def test_beside_a_program_that_stays_all_rounds_count_and_the_answer_says_so(tmp_path):
    runner, events = searched(tmp_path, Neighbour(lambda _: True, shows=160.0))
    assert len(runner.batches("confirmation")) == 2 * (17 + 1), "17 were planned at most"
    written = yaml.safe_load(events[-1].path.read_text(encoding="utf-8"))["evidence"]["speedup"]
    assert (written["rounds"], written["disturbed_rounds"]) == (18, 18)
    assert written["repeated_rounds"] == 17
    assert read_best(events[-1].path) == events[-1].best
    assert as_json(tmp_path / "study.db")["best"]["evidence"]["speedup"] == written
    said = "(1.60 to 1.60, 18 rounds, 18 of them disturbed)"
    assert any(said in line for line in lines_of(events))
    assert said in report(tmp_path / "study.db")


def test_a_refusal_by_disturbed_rounds_says_so(tmp_path):
    _, events = searched(tmp_path, Neighbour(lambda _: True))
    best = answer_in(events)
    assert best.keeps_baseline
    assert best.evidence.speedup.disturbed_rounds == 18
    (refused,) = [event for event in events if isinstance(event, CandidateRefused)]
    assert refused.reason.endswith("as fast as your settings (18 rounds, 18 of them disturbed)")
    said = "beyond the noise. 18 of the rounds that show this were disturbed."
    assert any(line.endswith(said) for line in lines_of(events))
    study = tmp_path / "study.db"
    assert f"{said}\n" in report(study)
    (log,) = as_json(study)["confirmation"]["candidates"].values()
    assert (log["disturbed"], len(log["ratios"]), log["refused"]) == (18, 18, refused.reason)


@pytest.fixture
def clock(monkeypatch):
    """That of the search, which goes on only where a test says so."""
    clock = Clock(time.monotonic())
    use_clock(monkeypatch, clock)
    return clock


def test_no_repeat_begins_once_the_time_is_up(tmp_path, clock):
    neighbour = Neighbour(lambda number: number in (1, 4), shows=150.0)

    def measure(config, phase):
        outcome = neighbour(config, phase)
        clock.now += 1000.0 if neighbour.timed == 5 else 0.0
        return outcome

    runner = ScriptedRunner(measure)
    events = events_of(unstored_in(tmp_path, TWO, time_budget_seconds=900.0), runner)
    speedup = answer_in(events).evidence.speedup
    assert len(runner.batches("confirmation")) == 2 * (4 + 1)
    assert (speedup.rounds, speedup.repeated_rounds, speedup.disturbed_rounds) == (5, 1, 2)


def test_a_disturbed_process_of_the_baseline_is_repeated(tmp_path):
    first = Neighbour(lambda number: number == 1, phase="baseline", size=8)
    runner, events = searched(tmp_path, first)
    folders = [asked.folder.name for asked in runner.asked if asked.phase == "baseline"]
    assert folders == ["0", "1", "2", "3"]
    assert {run["disturbed"] for run in baseline_runs(tmp_path)} == {False}
    details = [event.detail for event in events if isinstance(event, StepStarted)]
    again = "process 2 of 3, repeated: other programs used 49 % of the cores"
    assert details[:4] == ["process 1 of 3", "process 2 of 3", again, "process 3 of 3"]


def test_beside_a_program_that_stays_the_baseline_is_measured_all_the_same(tmp_path):
    always = Neighbour(lambda _: True, shows=100.0, phase="baseline", size=8)
    runner, events = searched(tmp_path, always)
    assert len(runner.batches("baseline")) == 3 + 1
    assert [run["disturbed"] for run in baseline_runs(tmp_path)] == [True] * 4
    assert answer_in(events).config["batch_size"] == 16


def baseline_runs(folder):
    """Return True for each of the processes kept that was disturbed."""
    runs = read(folder / "study.db").archive.notes.baseline_runs
    return [{"disturbed": any(b.noise.foreign for b in run.blocks)} for run in runs or ()]


@pytest.mark.parametrize("stays", [False, True])
def test_a_disturbed_drift_check_is_repeated_once(stays, tmp_path):
    random = Random(0)

    def measure(config, phase):
        rate = (100 + 20 * float(config["num_workers"] or 0)) * random.lognormvariate(0.0, 0.1)
        if phase != "anchor":
            return at(rate)
        repeated = runner.asked[-1].folder.name.endswith("-repeated")
        return at(rate) if repeated and not stays else beside(NEIGHBOUR, 0.18 * rate)

    runner = ScriptedRunner(measure)
    space = "num_workers: [0, 1, 2, 4]\nprefetch_factor: [1, 2, 4, 8]\n"
    events_of(options_in(tmp_path, space, trials=13), runner)
    names = [asked.folder.name for asked in runner.asked if asked.phase == "anchor"]
    assert names[1::2] == [f"{name}-repeated" for name in names[::2]] != []
    notes = read(tmp_path / "study.db").archive.notes
    speeds = [check.samples_per_second for check in notes.drift_checks["own"]]
    assert all(speed > 60 or (stays and not speed) for speed in speeds), "0: nothing was learnt"
