"""A search of a script that nobody changed: what it tries, what it asks, and what it refuses."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import scripted_runner
from autotune.calling.flag import Flag
from autotune.configuration.evidence import UNCHANGED
from autotune.configuration.script import ScriptOptions
from autotune.console.lines import answer_lines, plan_lines
from autotune.knobs.base import spelled
from autotune.process.common.trial_folder import FIRST_STEPS, TrialFolder
from autotune.report.data import read_report
from autotune.scripting.trial import NO_STEP, TOO_FEW
from autotune.searching.run.events import Answered, Planned
from autotune.study.archive import find_study
from autotune.values.errors import (
    StudyMismatchError,
    UsageError,
    WorkloadError,
)
from autotune.values.outcome import Crashed, TimedOut, UserError
from children import autotune
from command_line import command
from covering import covers
from factories import written
from scripted_runner import SEEN_SETTINGS as OWN
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in, unstored_in

SCRIPTS = Path(__file__).parents[1] / "scripts"
SPACE = "batch_size: [16, 64]\nnum_workers: [0, 2]\namp_dtype: [null, bfloat16, float16]\n"
SEEN = replace(
    scripted_runner.SEEN,
    loaders=("train.py:9#0", "train.py:10#0"),
    fixed={"channels_last": "the script sets it itself"},
)


def more_workers_help(config, phase):
    """Each worker loads as fast again, bfloat16 and larger batches compute faster."""
    rate = 100 * (1 + int(config["num_workers"] or 0)) * batch_of(config) / 16
    return at(rate * (2 if config["amp_dtype"] else 1))


def search(folder, script):
    """A search on the runner's word, with what it was asked and what it found."""
    runner = ScriptedRunner(measure=more_workers_help, observed=SEEN)
    events = events_of(_options(folder, script), runner)
    planned, answered = events[0], events[-1]
    assert isinstance(planned, Planned)
    assert isinstance(answered, Answered)
    return runner, answered, planned


def _options(folder, script):
    return options_in(folder, SPACE, script=script, trials=12)


def test_without_a_metric_only_what_cannot_change_the_model_is_tried(tmp_path):
    runner, answered, planned = search(tmp_path, ScriptOptions(("--epochs", "3")))
    assert planned.context.space.varied() == {"num_workers": (0, 2)}
    assert {asked.phase for asked in runner.asked} <= {
        *("observation", "inspection", "baseline", "trial", "anchor", "confirmation"),
    }
    assert answered.best.config["num_workers"] == 2
    accuracy = answered.best.constraints.accuracy
    assert (accuracy.metric, accuracy.evidence, accuracy.samples) == (UNCHANGED, "exact", 0)
    assert not accuracy.is_measured
    trials = read_report(find_study(str(tmp_path))).trials
    assert [trial.details.quality for trial in trials] == [None] * len(trials)
    assert answered.best.evidence.speedup.rounds >= 4


def test_settings_that_are_not_tried_are_named_by_their_reasons(tmp_path):
    space = f"{SPACE}compile_mode: [null, default]\n"
    options = unstored_in(tmp_path, space, script=ScriptOptions(()), trials=1)
    planned, *_ = events_of(options, ScriptedRunner(measure=more_workers_help, observed=SEEN))
    notes = planned.context.space.notes
    (note,) = (note for note in notes if "rounding" in note)
    assert note.startswith("not varying amp_dtype, compile_mode: each changes rounding")
    why = "batch_size stays 16: it changes the course of training, so it needs --map"
    assert why in "\n".join(notes)


def test_a_batch_that_no_loader_shows_is_told_as_a_guess(tmp_path):
    seen = replace(SEEN, training_loader="", loaders=())
    options = unstored_in(tmp_path, SPACE, script=ScriptOptions(()), trials=1)
    planned, *_ = events_of(options, ScriptedRunner(measure=more_workers_help, observed=seen))
    (note,) = (note for note in planned.context.space.notes if "batch_size" in note)
    assert note.startswith("batch_size stays as it is: no DataLoader shows it. If it is 16, as")
    assert note.endswith("name its flag with --map batch_size=--FLAG")


def test_every_child_gets_the_scripts_own_arguments_and_the_knobs_to_put_into_force(tmp_path):
    runner, _, _ = search(tmp_path, ScriptOptions(("--name", "a b")))
    calls = {job.script for job in runner.jobs[2:]}
    assert len(calls) == 1
    call = calls.pop()
    assert call.arguments == ("--name", "a b")
    assert {"num_workers", "num_threads", "cudnn_benchmark"} <= set(call.asked)
    assert not {"batch_size", "amp_dtype", "channels_last"} & set(call.asked)


def test_with_a_metric_numerics_and_batch_sizes_are_probed_one_seed_a_process(tmp_path):
    script = ScriptOptions(("--bs", "16"), (Flag("batch_size", "--bs"),), metric="acc (.*)")
    runner, answered, planned = search(tmp_path, script)
    assert planned.context.space.domains["amp_dtype"] == (None, "bfloat16")
    assert answered.best.config["batch_size"] == 64
    assert answered.best.config["amp_dtype"] == "bfloat16"
    assert {len(seeds) for _, seeds in runner.probes()} == {1}
    assert "gate" not in {asked.phase for asked in runner.asked}
    for job in runner.jobs[2:]:
        assert job.script is not None
        assert job.config is not None
        assert job.script.arguments == ("--bs", str(job.config["batch_size"]))
    accuracy = answered.best.constraints.accuracy
    assert (accuracy.metric, accuracy.evidence) == (
        "metric_regex",
        "numerical check and short trainings",
    )
    assert accuracy.seeds >= 3


def test_what_the_script_sets_itself_gives_way_to_other_values_alone(tmp_path):
    def fewer_threads_are_faster(config, phase):
        return at(100.0 / int(config["num_threads"] or 1))

    seen = replace(scripted_runner.SEEN, own=("num_threads",))
    options = options_in(tmp_path, "num_threads: [1, 2]\n", script=ScriptOptions(()), trials=4)
    runner = ScriptedRunner(measure=fewer_threads_are_faster, observed=seen)
    planned, *_, answered = events_of(options, runner)
    assert isinstance(planned, Planned)
    assert isinstance(answered, Answered)
    assert answered.best.config["num_threads"] == 1
    told = "num_threads: set by the script; trials replace its values"
    assert any(told in line for line in plan_lines(planned.context))
    calls = [(job.config, job.script) for job in runner.jobs if job.config and job.script]
    asked = {config["num_threads"]: "num_threads" in script.asked for config, script in calls}
    assert asked == {1: True, 2: False}
    assert all(script.own == seen.workload.baseline for _, script in calls)


def test_code_that_is_compiled_for_each_shape_is_tried_with_any_shape(tmp_path):
    own = {"compile_mode": "default", "compile_dynamic": None}
    facts = replace(scripted_runner.SEEN.workload, baseline=OWN | own)
    space, script = "compile_mode: [null, default]\n", ScriptOptions((), metric="acc (.*)")
    for times, values in ((0, (None,)), (7, (None, True))):
        seen = replace(scripted_runner.SEEN, own=tuple(own), recompilations=times, workload=facts)
        options = unstored_in(tmp_path, space, script=script, trials=1)
        planned, *_ = events_of(options, ScriptedRunner(measure=more_workers_help, observed=seen))
        assert isinstance(planned, Planned)
        assert planned.context.space.domains["compile_dynamic"] == values
        told = any("compiled 7 times" in line for line in plan_lines(planned.context))
        assert told is (times > 0)


def test_a_switch_for_float16_leaves_bfloat16_to_autotune(tmp_path):
    switch = Flag("amp_dtype", "--fp16", "float16")
    runner, _, _ = search(tmp_path, ScriptOptions((), (switch,), metric="acc (.*)"))
    calls = [(job.config, job.script) for job in runner.jobs if job.config and job.script]
    asked = {
        config["amp_dtype"]: "amp_dtype" in script.asked and "amp_dtype" not in script.by_flag
        for config, script in calls
    }
    assert asked == {None: False, "bfloat16": True}


def test_the_baseline_is_called_by_the_batch_size_that_was_seen(tmp_path):
    """Not by what the command line says, which the script may read as something else."""
    flags = (Flag("batch_size", "--bs"),)
    script = ScriptOptions(("--bs", "8"), flags, metric="acc (.*)")
    runner, *_ = search(tmp_path, script)
    calls = [job.script for job in runner.jobs]
    assert calls[0] is not None
    assert (calls[0].arguments, calls[0].by_flag) == (("--bs", "8"), ()), "the observation"
    assert calls[2] is not None
    assert (calls[2].arguments, calls[2].by_flag) == (("--bs", "16"), ("batch_size",))


def test_a_loss_that_rises_is_a_worse_model(tmp_path):
    script = ScriptOptions((), metric="loss (.*)", higher_is_better=False)
    runner = ScriptedRunner(
        measure=more_workers_help,
        quality=lambda config, seed: 2.0 if config["amp_dtype"] else 1.0,
        observed=SEEN,
    )
    answered = events_of(_options(tmp_path, script), runner)[-1]
    assert answered.best.config["amp_dtype"] is None
    assert answered.best.config["num_workers"] == 2


@pytest.mark.parametrize(
    ("outcome", "said", "advice"),
    [
        (
            TimedOut("start", 600.0),
            "no training step within 10 min 0 s",
            "--trial-timeout 20m or more",
        ),
        (TimedOut("start", 20.0), "no training step within 20 s", "--time-budget 7m or more"),
        (
            Crashed("killed by SIGSEGV"),
            "it made no training step: killed by SIGSEGV",
            "`autotune init` writes a template",
        ),
        (
            UserError("ValueError: no", "train.py:3"),
            "train.py:3: ValueError: no",
            "with the arguments after `--` and without terminal input",
        ),
        (
            UserError("ValueError: environment variable RANK expected, but not set", "train.py:3"),
            "train.py:3: ValueError: environment variable RANK expected",
            "give --nproc-per-node N",
        ),
        (
            UserError("ValueError: Default process group has not been initialized", "train.py:3"),
            "train.py:3: ValueError: Default process group has not been",
            "give --nproc-per-node N",
        ),
        (
            UserError("KeyError: 'LOCAL_RANK'", "train.py:3"),
            "train.py:3: KeyError: 'LOCAL_RANK'",
            "give --nproc-per-node N",
        ),
        (UserError(TOO_FEW.format(steps=6), ""), "it ended after 6 steps, too few", "longer"),
    ],
)
def test_a_script_that_cannot_be_observed_is_the_users_error(tmp_path, outcome, said, advice):
    with pytest.raises(WorkloadError) as error:
        events_of(_options(tmp_path, ScriptOptions(())), ScriptedRunner(observed=outcome))
    assert f"run as a training script: {said}" in str(error.value)
    assert advice in str(error.value)
    assert ("autotune init" in str(error.value)) == ("autotune init" in advice)


@pytest.mark.parametrize("outcome", [TimedOut("start", 20.0), UserError(NO_STEP, "")])
@pytest.mark.parametrize("starts", [True, False])
def test_a_script_that_may_train_in_processes_of_its_own_is_told_of_launchers(
    tmp_path, outcome, starts
):
    source = "import torch.multiprocessing as mp\nmp.spawn(train, nprocs=2)\n" if starts else ""
    script = written(tmp_path, source, "train.py")
    options = _options(tmp_path, ScriptOptions(()))
    options = replace(options, workload=replace(options.workload, model_path=script))
    with pytest.raises(WorkloadError) as error:
        events_of(options, ScriptedRunner(observed=outcome))
    assert ("and give --nproc-per-node N" in str(error.value)) == starts


def test_a_script_that_fails_in_a_folder_of_its_own_is_told_where_relative_paths_begin(tmp_path):
    failing = ScriptedRunner(observed=UserError("FileNotFoundError: data", "train.py:3"))
    for workdir in (None, "temporary"):
        with pytest.raises(WorkloadError) as error:
            events_of(_options(tmp_path, ScriptOptions((), workdir=workdir)), failing)
        assert ("(--workdir), where relative paths start" in str(error.value)) == bool(workdir)


def test_a_script_that_lacks_arguments_is_quoted(tmp_path):
    shutil.copy(SCRIPTS / "faulty.py", tmp_path / "train.py")
    done = autotune(tmp_path, "search", "train.py", "--", "lacks arguments")
    assert done.returncode == 4
    assert (
        "sys.exit(2): train.py: error: the following arguments are required: --data" in done.stderr
    )
    assert "ran with the arguments after `--`" in done.stderr


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (TimedOut(FIRST_STEPS, 600.0), "too few steps to be timed within 10 min 0 s"),
        (Crashed("killed by SIGKILL"), "it ended during its first steps: killed by SIGKILL"),
    ],
)
def test_few_steps_are_not_said_to_be_none(tmp_path, outcome, said):
    runner = ScriptedRunner(observed=outcome)
    asked = runner.run

    def run(job, folder):
        folder.mkdir(parents=True, exist_ok=True)
        TrialFolder(folder).enter_phase(FIRST_STEPS)
        return asked(job, folder)

    runner.run = run
    with pytest.raises(WorkloadError, match=said):
        events_of(_options(tmp_path, ScriptOptions(())), runner)


@covers("X8")
def test_arguments_of_a_script_are_in_no_file_of_the_study(tmp_path):
    search(tmp_path, ScriptOptions(("--token", "planted-hunter2")))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"best.yaml", "study.db"} <= {path.name for path in files}
    assert not [path for path in files if b"planted-hunter2" in path.read_bytes()]


def test_a_study_goes_on_with_the_same_contents_of_its_config_files_alone(tmp_path):
    config = tmp_path / "conf.yaml"
    config.write_text("depth: 1\n")
    script = ScriptOptions((f"--config={config}",))
    search(tmp_path, script)
    search(tmp_path, script)
    config.write_text("depth: 2\n")
    with pytest.raises(
        StudyMismatchError, match="the config files that the arguments name: not those of"
    ):
        search(tmp_path, script)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--exact-only", "--map", "batch_size=--bs"), "contradicts --map batch_size=--bs"),
        (("--map", "amp_dtype=--p"), "--map amp_dtype is for `autotune run`"),
        (("--workdir", "runs", "--temp-workdir"), "--workdir runs with --temp-workdir"),
        (("--metric-regex", "("), "--metric-regex '(' is not a regular expression"),
        (("--device", "cpu", "--baseline", "batch_size=4"), "the script chooses its device"),
        (("--fresh-data",), "--fresh-data is for a model.py"),
        (("--map", "batch=--bs"), "unknown setting 'batch'"),
    ],
)
def test_an_option_that_is_not_for_scripts_is_refused_before_the_script_runs(
    tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    done = command("search", "train.py", *arguments)
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "ran").exists()


def test_odd_names_and_arguments_reach_the_script_as_they_are(tmp_path):
    """From a folder in which nothing is written: of a plan nothing is kept."""
    odd = ["--help", "--", "a b", "'\"", "$(echo no)", "two\nlines", ""]
    said = tmp_path / "said.json"
    text = (SCRIPTS / "stream_loop.py").read_text()
    keep = f"import json, sys\nopen({str(said)!r}, 'w').write(json.dumps(sys.argv[1:]))\n"
    folder = tmp_path / 'it\'s "odd" $(x)'
    written(folder, keep + text, "train it's.py")
    folder.chmod(0o555)
    done = autotune(folder, "search", "train it's.py", "--dry-run", "--", *odd)
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert json.loads(said.read_text()) == odd
    assert "DataLoader train it's.py:" in done.stderr
    assert [entry.name for entry in folder.iterdir()] == ["train it's.py"]


@pytest.mark.parametrize("text", ["", "def build_model(): ..."])
@pytest.mark.parametrize(
    "words", [("search", "train.py"), ("compare", "train.py", "best.yaml"), ("profile", "train.py")]
)
def test_a_command_that_a_launcher_starts_several_times_is_refused(
    words, text, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "2")
    (tmp_path / "train.py").write_text(text)
    done = command(*words)
    assert done.code == 2
    assert "WORLD_SIZE=2 is set" in done.err


def test_flags_for_scripts_are_refused_with_a_model_py(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("def build_model(): ...")
    done = command("search", "model.py", "--exact-only")
    assert done.code == 2
    assert "is for training scripts" in done.err


BOTH = (Flag("batch_size", "--batch-size"), Flag("accumulation_steps", "--accumulate"))


def held_search(folder, flags):
    """A search of a script that steps after four batches of 16, and the jobs that it made."""
    seen = replace(SEEN, workload=replace(SEEN.workload, baseline={**OWN, "accumulation_steps": 4}))
    runner = ScriptedRunner(measure=more_workers_help, observed=seen)
    space = "batch_size: [8, 16, 32, 48, 64]\nnum_workers: [0, 2]\n"
    script = ScriptOptions((), flags, metric="accuracy ([0-9.]+)")
    events = events_of(unstored_in(folder, space=space, script=script, trials=12), runner)
    assert isinstance(events[0], Planned)
    return runner, events[0]


def test_a_script_that_accumulates_keeps_its_effective_batch_by_both_flags(tmp_path):
    runner, _ = held_search(tmp_path / "both", BOTH)
    calls = {job.script.arguments for job in runner.jobs if job.script and job.script.arguments}
    expected = {(str(size), str(64 // size)) for size in (8, 16, 32, 64)}
    assert {(call[1], call[3]) for call in calls} == expected
    assert {(call[0], call[2]) for call in calls} == {("--batch-size", "--accumulate")}


@pytest.mark.parametrize(("start", "own"), [(5.0, True), (30.0, False)])
def test_rounds_have_no_hosts_of_their_own_where_these_would_import_for_long(tmp_path, start, own):
    seen = replace(SEEN, start_seconds=start, import_seconds=1.0)
    runner = ScriptedRunner(measure=more_workers_help, observed=seen)
    events_of(unstored_in(tmp_path, SPACE, script=ScriptOptions(()), trials=4), runner)
    hosts = [job.host for job in runner.jobs]
    assert ("round 3" in hosts) == own


def test_a_script_that_ends_too_soon_in_the_search_has_no_baseline_to_correct(tmp_path):
    def ended(config, phase):
        return UserError(TOO_FEW.format(steps=509), "")

    options = unstored_in(tmp_path, SPACE, script=ScriptOptions(()))
    with pytest.raises(WorkloadError, match="Correct it or its arguments") as told:
        events_of(options, ScriptedRunner(measure=ended, observed=SEEN))
    assert "BASELINE" not in str(told.value)


def test_the_answer_names_settings_that_are_the_script_s_own(tmp_path):
    _, answered, _ = search(tmp_path, ScriptOptions(()))
    own = spelled(answered.best.evidence.baseline.config["channels_last"])
    told = f"  not varied  channels_last={own}: the script sets it itself"
    assert told in answer_lines(answered)


SIZES = "batch_size: [16, 32]\n"


def test_an_effective_batch_that_processes_cannot_share_is_refused_before_the_script_runs(tmp_path):
    script = ScriptOptions((), BOTH, metric="accuracy ([0-9.]+)")
    runner = ScriptedRunner(measure=more_workers_help, observed=SEEN)
    options = {"effective_batch": 101, "nproc_per_node": 2}
    with pytest.raises(UsageError, match="--effective-batch 101: 2 processes cannot share it"):
        events_of(unstored_in(tmp_path, space=SIZES, script=script, **options), runner)
    assert runner.jobs == []


@pytest.mark.parametrize("arguments", [(), ("--batch-size", "50")])
def test_the_scripts_own_batch_size_may_divide_what_a_portable_space_does_not(tmp_path, arguments):
    seen = replace(SEEN, workload=replace(SEEN.workload, baseline={**OWN, "batch_size": 50}))
    runner = ScriptedRunner(measure=more_workers_help, observed=seen)
    script = ScriptOptions(arguments, BOTH, metric="accuracy ([0-9.]+)")
    space = "portable: true\n" + SIZES
    asked = unstored_in(tmp_path, space=space, script=script, effective_batch=100)
    planned = events_of(asked, runner)[0]
    assert planned.context.space.domains["batch_size"] == (25, 50, 100)


def test_with_one_of_the_flags_alone_neither_is_changed(tmp_path):
    runner, planned = held_search(tmp_path / "one", BOTH[:1])
    assert {job.config["batch_size"] for job in runner.jobs if job.config} == {16}
    assert (
        "batch_size stays 16: keeping the effective batch needs --map accumulation_steps=--FLAG"
    ) in planned.context.space.notes
