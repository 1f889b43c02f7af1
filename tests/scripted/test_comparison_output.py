"""`autotune compare` of files: what it says and refuses, and with which exit code."""

import json
import re
import shutil
from contextlib import chdir
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.values.measurement import Noise
from autotune.values.outcome import Measured
from children import SETTINGS, WORKLOADS, hurried, nobody_is_left
from command_line import command
from factories import best_config, cpu_machine, found_here, written
from scripted_runner import ScriptedRunner, at, batch_of

SMALL, LARGE = (TrainingConfig.of({"batch_size": size}) for size in (8, 64))
NOT_FASTER = 8


class Runner(ScriptedRunner):
    """Times the small batch at 100 samples/s; remembers the folder of each timing."""

    def __init__(self, timing):
        timed = count()
        super().__init__(lambda c, _: at(100) if batch_of(c) == 8 else timing(next(timed)))
        self.names: list[str] = []

    def run(self, job, folder):
        if job.config is not None:
            self.names.append(folder.name)
        return super().run(job, folder)


@pytest.fixture
def compare(tmp_path, monkeypatch):
    """`autotune compare` of large.yaml with the answers that follow, by a scripted runner."""
    monkeypatch.chdir(tmp_path)
    model = Path(shutil.copy(WORKLOADS / "plain.py", "model.py"))
    for name, config in (("large.yaml", LARGE), ("small.yaml", SMALL)):
        write_best(found_here(best_config(config, SMALL), model), Path(name))

    def compared(timing, *words, claims=("--require-faster",)):
        runner = Runner(timing)
        monkeypatch.setattr("autotune.commands.execute.SubprocessRunner", lambda *_, **__: runner)
        words = ("model.py", "large.yaml", *words, "--rounds", "6", "--json", *claims)
        return command("compare", *words), runner

    return compared


def disturbed(number, numbers):
    """1.5 times as fast, and 0.18x in timings that were disturbed."""
    if number not in numbers:
        return at(150)
    run = at(18).measurement
    busy = (replace(block, noise=Noise(foreign=0.49)) for block in run.blocks)
    return Measured(replace(run, blocks=tuple(busy)))


def result_of(done):
    return json.loads(done.out)


def test_the_result_is_one_sentence_and_one_json_object(compare):
    done, _ = compare(lambda _: at(150), "small.yaml")
    assert done.code == 0
    said = "large.yaml is 1.50x as fast as small.yaml (1.50 to 1.50, 6 rounds)"
    assert done.err.splitlines()[-1] == said
    result = result_of(done)
    assert result["ratio"] == pytest.approx(1.5)
    assert (result["rounds"], len(result["ratios"])) == (6, 6)
    assert result["confirmed_faster"] is True
    assert result["a"]["samples_per_second"] == pytest.approx(150)
    assert result["b"]["settings"] == "small.yaml"


def test_a_disturbed_round_is_repeated_and_told(compare):
    done, runner = compare(partial(disturbed, numbers={0, 3}), "small.yaml")
    result = result_of(done)
    assert result["ratios"] == [1.5] * 6
    assert (result["disturbed_rounds"], result["repeated_rounds"]) == (0, 2)
    assert len(set(runner.names)) == 2 * 8
    lines = done.err.splitlines()
    void = [line for line in lines if "other programs used 49 % of the cores" in line]
    assert [line.split()[:2] for line in void] == [["round", "1"], ["round", "3"]]
    assert len([line for line in lines if "1.500x" in line]) == 6


def test_an_answer_alone_has_to_be_as_fast_as_was_confirmed(compare):
    ratios = [0.8, 1.3, 1.6, 1.9, 2.2, 2.5]
    done, _ = compare(lambda number: at(100 * ratios[number]))
    assert done.code == 0
    said = "6 rounds); previously confirmed 1.45 to 1.55, which still holds"
    assert done.err.splitlines()[-1].endswith(said)
    done, _ = compare(lambda number: at(100 * ratios[number]), "small.yaml")
    assert done.code == NOT_FASTER, "of two answers, the first has to be faster"


@pytest.mark.parametrize(
    ("rate", "code", "state"), [(144, 0, "was not shown to be slower"), (120, 8, "is slower")]
)
def test_a_rate_far_below_the_recorded_one_fails_a_job(compare, rate, code, state):
    flags = ("--against", "large.yaml", "--max-regression", "5%")
    done, _ = compare(lambda _: at(rate), *flags, claims=())
    assert done.code == code, done.err
    said = done.err.splitlines()[-1]
    assert f"{rate / 150:.2f}x the recorded 150 samples/s" in said
    assert "your settings run at 1.00x their recorded rate" in said
    assert said.endswith(f"; it {state} by more than 5 %")
    against = result_of(done)["against"]
    assert (against["samples_per_second"], against["ratio"]) == (150.0, pytest.approx(rate / 150))
    low, high = against["ci95"]
    assert low * high == pytest.approx(against["ratio"] ** 2)
    assert high / against["ratio"] >= 151 / 150, "the noise of the record counts, too"
    assert result_of(done)["regressed"] is bool(code)


def test_a_slower_rate_within_the_noise_is_no_regression(compare):
    rates = [90, 210, 95, 160, 120, 180]
    flags = ("--max-regression", "0.05", "--against", "large.yaml")
    done, _ = compare(lambda number: at(rates[number]), *flags, claims=())
    result = result_of(done)
    assert result["against"]["ratio"] < 0.95
    assert (done.code, result["regressed"]) == (0, False)


def test_another_file_that_is_slower_fails_a_job_that_allows_less(compare):
    for most, code in (("15%", 0), ("5%", NOT_FASTER)):
        done, _ = compare(lambda _: at(90), "small.yaml", "--max-regression", most, claims=())
        assert (done.code, result_of(done)["regressed"]) == (code, bool(code))
    refused = command("compare", "model.py", "--against", "large.yaml", "--max-regression", "100%")
    assert "'100%' is not a share; write 5% or 0.05" in refused.err


def test_each_comparison_adds_its_rate_to_the_history_that_a_report_shows(compare, tmp_path):
    for rate in (150, 120):
        compare(lambda _, now=rate: at(now), "--against", "large.yaml")
    path = tmp_path / "studies" / "tiny" / "history.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["samples_per_second"] for line in lines] == [150.0, 120.0]
    assert lines[0]["torch"] == cpu_machine().torch
    assert (lines[0]["workload"], lines[0]["settings"]) == ("model.py", "batch_size=64")
    assert confirmed_rates() == lines
    assert drawn_over_time() == ["2 confirmed rates over time on Test CPU"]


def confirmed_rates():
    """The history of the study, as a report tells it."""
    shutil.copy("large.yaml", Path("studies", "tiny", "best.yaml"))
    return json.loads(command("report", "tiny", "--json", "-").out)["confirmed_rates"]


def drawn_over_time():
    """The drawings of the history on the report's page, each of which has marks of two rates."""
    assert command("report", "tiny", "--html", "page.html").code == 0
    drawn = Path("page.html").read_text().partition('id="over-time"')[2].partition("</section>")[0]
    labels = re.findall('aria-label="([^"]*)"', drawn)
    assert drawn.count("<title>compare: ") == 2 * len(labels)
    return labels


def test_a_rate_follows_a_line_that_a_full_disk_cut_short(compare):
    for rate in (150, 120):
        compare(lambda _, now=rate: at(now))
        with Path("studies", "tiny", "history.jsonl").open("a") as file:
            file.write('{"date": "2026-11-')
    assert [rate["samples_per_second"] for rate in confirmed_rates()] == [150.0, 120.0]


def test_rates_of_one_process_and_of_several_are_drawn_apart(compare):
    for processes in (1, 2, 1, 2):
        compare(lambda _: at(150), "--nproc-per-node", f"{processes}")
    told = [(rate["device"], rate["devices"], rate["processes"]) for rate in confirmed_rates()]
    assert told == 2 * [("Test CPU", 1, 1), ("Test CPU", 1, 2)]
    of_one, of_two = drawn_over_time()
    assert of_one == "2 confirmed rates over time on Test CPU"
    assert of_two == "2 confirmed rates over time on Test CPU, 2 processes"


USAGE, WORKLOAD, MISMATCH, NOT_FASTER = 2, 4, 6, 8
OWN = TrainingConfig.of(SETTINGS)


def answer(folder, name, **changes):
    """A best.yaml with some changes over the workload's own settings."""
    path = folder / name
    write_best(best_config(OWN.replace(**changes), OWN), path)
    return path


def refused(folder, code, *arguments):
    """The message of a comparison that ended as it should, before it started a process."""
    with chdir(folder):
        done = command("compare", *arguments)
    assert "Traceback" not in done.err
    assert (done.code, done.out) == (code, ""), done.err
    return done.err


@pytest.mark.real
def test_a_speed_up_that_has_gone_fails_a_job_with_the_rounds_that_say_so(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for workload in ("stalls_when_fused", "plain"):
        shutil.copy(WORKLOADS / f"{workload}.py", tmp_path)
    (tmp_path / "stalls_when_fused.py").rename(tmp_path / "model.py")
    best = answer(tmp_path, "best.yaml", optimizer_impl="fused")
    assert read_best(best).evidence.speedup.ratio == 1.5, "what it was once"
    flags = ["--require-faster", "--rounds", "6", "--device", "cpu", "--json"]
    done = hurried(tmp_path, "compare", "model.py", "best.yaml", *flags)
    assert done.returncode == NOT_FASTER, done.stderr
    result = json.loads(done.stdout)
    assert result["schema_version"] == 1
    assert result["ci95"][1] < 1
    assert result["still_holds"] is False
    rounds = result["rounds"]
    assert len(result["ratios"]) == rounds >= 6, "more where something else disturbed them"
    lines = done.stderr.splitlines()
    told = sum(line.startswith("  round ") for line in lines)
    assert rounds <= told <= rounds + result["repeated_rounds"], "the void ones, too"
    low, high = result["ci95"]
    interval = f"({low:.2f} to {high:.2f}, {rounds} rounds"
    said = f"{result['ratio']:.2f}x as fast as your settings {interval}"
    assert lines[-1].startswith(f"best.yaml is {said}")
    assert lines[-1].endswith("confirmed 1.45 to 1.55, which no longer holds")
    assert not list(tmp_path.glob("autotune-*")), "the logs are gone where all went well"
    assert nobody_is_left(tmp_path)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["absent.yaml"], "absent.yaml: cannot be read"),
        (["good.yaml", "absent.yaml"], "absent.yaml: cannot be read"),
        (["newer.yaml"], "upgrade autotune"),
        (["rubbish.yaml"], "rubbish.yaml:1:"),
        (["good.yaml", "--rounds", "5"], "--rounds"),
        ([], "Missing argument 'A'"),
    ],
)
def test_files_that_cannot_be_compared_are_refused_before_anything_runs(tmp_path, flags, words):
    text = answer(tmp_path, "good.yaml", batch_size=16).read_text()
    written(tmp_path, text.replace("autotune: 1", "autotune: 3", 1), "newer.yaml")
    written(tmp_path, "autotune: [", "rubbish.yaml")
    assert words in refused(tmp_path, USAGE, WORKLOADS / "plain.py", *flags)


def test_strict_refuses_an_answer_that_was_made_for_something_else(tmp_path):
    elsewhere = answer(tmp_path, "elsewhere.yaml", batch_size=16)
    model = WORKLOADS / "plain.py"
    message = refused(tmp_path, MISMATCH, model, elsewhere, "--strict")
    for words in (
        "elsewhere.yaml was made for something else",
        "CPU: Test CPU in the file",
        "plain.py: changed",
    ):
        assert words in message
    here = tmp_path / "here.yaml"
    write_best(found_here(best_config(OWN, OWN), model), here)
    assert "elsewhere.yaml was" in refused(tmp_path, MISMATCH, model, here, elsewhere, "--strict")
