"""The stages of an unchanged script: profiled by a command, and used by a search of it."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import scripted_runner
from autotune.configuration.script import ScriptOptions
from autotune.report.data import read_report
from autotune.searching.run.events import StagesTimed, StagesUnknown
from autotune.study.archive import find_study
from autotune.values.outcome import Diagnosed, Loading
from children import autotune
from command_line import command
from factories import written
from reporting import Page
from scripted_runner import ScriptedRunner, events_of, options_in, unstored_in

SCRIPTS = Path(__file__).parents[2] / "scripts"
SPACE = "num_workers: [0, 2]\nnum_threads: [1, 2]\n"
STAGES = Diagnosed(
    batch_size=16,
    compute_seconds=0.1,
    double_compute_seconds=None,
    transfer_seconds=0.0,
    loading=(Loading(0, 0.0001),),
    optimizer_seconds=0.02,
)
SEEN = replace(
    scripted_runner.SEEN,
    steps_per_second=10.0,
    samples_per_second=160.0,
    wait_share=0.001,
    stages=STAGES,
)
WRITES = """
from pathlib import Path

Path("runs").mkdir(exist_ok=True)
Path("runs", "log.txt").write_text("new")
Path("kept.txt").write_text("again")
"""


def script_in(folder, **defaults):
    """A script with other defaults of its arguments, and a sleep in the place of long computing."""
    source = (SCRIPTS / "plain_loop.py").read_text()
    for name, value in defaults.items():
        flag = f'--{name.replace("_", "-")}", type='
        source, count = re.subn(rf"({re.escape(flag)}\w+, default=)[^)]*", rf"\g<1>{value}", source)
        assert count == 1
    (folder / "train.py").write_text(source)


def test_a_script_that_waits_for_its_disk_is_said_to_wait_for_loading(tmp_path):
    script_in(tmp_path, epochs="100000")
    counts = "open('starts.txt', 'a').write('started ')\n"
    written(tmp_path, WRITES + counts + (tmp_path / "train.py").read_text(), "train.py")
    written(tmp_path, "of an earlier run", "kept.txt")
    done = autotune(tmp_path, "profile", "train.py", "--", "--read-seconds", "0.002")
    assert done.returncode == 0, done.stderr
    assert "bottleneck of your settings is loading." in done.stdout
    assert re.search(r"^loader, num_workers=0 +[\d.]+ +0\.03", done.stdout, re.MULTILINE)
    assert re.search(r"^compute, update +[\d.]+ +0\.0", done.stdout, re.MULTILINE)
    assert re.search(r"Training reaches [\d.]+/s, \d+ % of that phase by itself", done.stdout)
    assert "aten::" in done.stdout
    assert (tmp_path / "starts.txt").read_text() == "started ", "one run tells all"
    assert "command: python train.py --read-seconds 0.002\n" in done.stderr
    assert "write to: runs, the current directory (later checkpoints" in done.stderr
    assert "each run overwrites: kept.txt\n" in done.stderr
    assert [path.name for path in (tmp_path / "studies").iterdir()] == ["kept"]


def test_a_loader_that_cannot_matter_is_left_out_of_the_search_of_a_script(tmp_path):
    script_in(tmp_path, epochs="100000")
    path = tmp_path / "train.py"
    slow = path.read_text().replace("logits = model(x)", "time.sleep(0.4); logits = model(x)")
    # By no name that is proposed as a map: larger batches would take longer to load.
    path.write_text(slow.replace("batch-size", "images").replace("args.batch_size", "args.images"))
    done = autotune(tmp_path, "profile", "train.py", "--", "--images", "1")
    assert done.returncode == 0, done.stderr
    assert "bottleneck of your settings is computing." in done.stdout
    assert re.search(r"num_workers stays 0: loading takes [\d.e-]+ % of computing", done.stdout)


def test_a_search_uses_what_was_seen_in_the_observed_run(tmp_path):
    options = options_in(tmp_path, SPACE, script=ScriptOptions(()), trials=6)
    events = events_of(options, runner := ScriptedRunner(observed=SEEN))
    timed = next(event for event in events if isinstance(event, StagesTimed))
    assert timed.space.varied() == {"num_threads": (1, 2)}
    assert "num_workers stays 0: loading takes 0.1 % of computing" in timed.space.notes
    assert "diagnosis" not in {asked.phase for asked in runner.asked}, "no run of its own"
    assert {job.config["num_workers"] for job in runner.jobs if job.config} == {0}
    stages = events[-1].best.evidence.baseline.stages
    assert (stages.bound, stages.loading) == ("computing", 160_000)
    report = read_report(find_study(str(tmp_path)))
    assert report.stages == STAGES
    again = events_of(options, ScriptedRunner(observed=replace(SEEN, stages=None)))
    assert any(isinstance(event, StagesTimed) for event in again), "as it was noted"


def test_the_report_of_a_search_of_a_script_draws_each_stage(tmp_path):
    seen = replace(SEEN, stages=replace(STAGES, transfer_seconds=0.01))
    options = options_in(tmp_path, SPACE, script=ScriptOptions(()), trials=6)
    events_of(options, ScriptedRunner(observed=seen))
    done = command("report", tmp_path, "--html", tmp_path / "report.html")
    assert done.code == 0, done.err
    words = Page((tmp_path / "report.html").read_text()).words
    place = words.index("loader, num_workers=0")
    drawn = [word for word in words[place:] if word.strip()][:12]
    rates = dict(zip(drawn[::3], drawn[2::3], strict=True))  # between them the bar's share
    assert rates == {
        "loader, num_workers=0": "160,000 →",
        "copy to device": "1,600 →",
        "compute": "160",
        "compute, update": "800 →",
    }


def test_without_a_loader_a_search_tells_computing_and_updating(tmp_path):
    loaders = dict.fromkeys(("num_workers", "pin_memory"), "no torch DataLoader feeds training")
    seen = replace(
        SEEN,
        loaders=(),
        training_loader="",
        fixed=loaders,
        stages=replace(STAGES, loading=(), optimizer_seconds=0.0001),
    )
    space = "optimizer_impl: [null, fused]\nnum_threads: [1, 2]\n"
    judged = ScriptOptions((), metric="accuracy ([0-9.]+)")
    options = unstored_in(tmp_path, space, script=judged, trials=6)
    events = events_of(options, ScriptedRunner(observed=seen))
    timed = next(event for event in events if isinstance(event, StagesTimed))
    assert timed.diagnosis.bound == "computing"
    assert timed.diagnosis.limits() == pytest.approx({"compute": 160.0, "compute, update": 160_000})
    assert "optimizer_impl stays null: the optimizer takes 0.1 % of a step" in timed.space.notes
    stages = events[-1].best.evidence.baseline.stages
    assert (stages.bound, stages.loading, stages.computing) == ("computing", None, 160.0)


def test_the_stages_of_a_script_without_a_loader_are_profiled(tmp_path):
    shutil.copy(SCRIPTS / "no_loader.py", tmp_path / "train.py")
    done = autotune(tmp_path, "profile", "train.py", "--", "optimizer")
    assert done.returncode == 0, done.stderr
    # The second on a machine so busy that the stage and the training differ.
    assert re.search("bottleneck of your settings is computing|Run it again: training", done.stdout)
    assert re.search(r"^compute +[\d.]+ +0\.0", done.stdout, re.MULTILINE)
    assert "loader, num_workers" not in done.stdout


def test_without_stages_nothing_is_left_out(tmp_path):
    options = unstored_in(tmp_path, SPACE, script=ScriptOptions(()), trials=6)
    events = events_of(options, ScriptedRunner(observed=replace(SEEN, stages=None)))
    (unknown,) = [event for event in events if isinstance(event, StagesUnknown)]
    assert "the phases of this script's steps cannot be separated" in unknown.reason


@pytest.mark.parametrize("words", [("--device", "cpu"), ("--baseline", "batch_size=4")])
def test_what_the_script_decides_is_no_option_of_its_profile(words, tmp_path):
    shutil.copy(SCRIPTS / "plain_loop.py", tmp_path / "train.py")
    done = autotune(tmp_path, "profile", "train.py", *words)
    assert done.returncode == 2
    assert "train.py is run as a training script: " in done.stderr
