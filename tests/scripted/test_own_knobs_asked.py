"""Knobs of the user's own in a search: what they are today, what they need, what is refused."""

from dataclasses import replace

import pytest

from autotune.calling.flag import Flag
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import environ_of
from autotune.searching.run.events import Answered
from autotune.values.errors import StudyMismatchError, UsageError
from autotune.values.outcome import Inspected, Signature
from factories import cpu_machine, cuda_machine
from scripted_runner import FACTS, SEEN, ScriptedRunner, at, events_of, unstored_in

SIGNATURES = {
    "build_model": Signature(
        "build_model(checkpoint=False, width=8)", {"checkpoint": False, "width": 8}
    ),
    "build_dataset": Signature("build_dataset()", {}),
}
INSPECTED = Inspected(cpu_machine(), replace(FACTS, signatures=SIGNATURES))


def faster_with(name, value):
    """A runner for which this setting doubles the throughput."""

    def measure(config, phase):
        return at(200 if config[name] == value else 100)

    return ScriptedRunner(measure=measure, inspected=INSPECTED, observed=SEEN)


def searched(folder, space, runner, **options):
    answered = events_of(unstored_in(folder, space, **options), runner)[-1]
    assert isinstance(answered, Answered)
    return answered


def refusal(folder, space, **options):
    runner = ScriptedRunner(inspected=INSPECTED, observed=SEEN)
    with pytest.raises(UsageError) as error:
        events_of(unstored_in(folder, space, **options), runner)
    assert not [job for job in runner.jobs if job.task.kind not in ("inspect", "observe")]
    return str(error.value).replace(f"{folder}/", "").splitlines()


@pytest.mark.parametrize(
    ("effect", "evidence", "full_run"),
    [
        ("exact", "exact", False),
        ("numerics", "short trainings", False),
        ("statistics", "short trainings", True),
    ],
)
def test_the_effect_decides_the_evidence(tmp_path, effect, evidence, full_run):
    space = f"options:\n  checkpoint: {{values: [false, true], effect: {effect}}}\n"
    runner = faster_with("options.checkpoint", True)
    best = searched(tmp_path, space, runner).best
    assert best.config["options.checkpoint"] is True
    assert best.evidence.baseline.config["options.checkpoint"] is False
    assert best.effects == {"options.checkpoint": effect}
    accuracy = best.constraints.accuracy
    assert (accuracy.evidence, accuracy.needs_full_run) == (evidence, full_run)
    probed = {
        job.config["options.checkpoint"]
        for job in runner.jobs
        if job.task.kind == "probe" and job.config
    }
    assert probed == ({False} if effect == "exact" else {False, True})


def test_what_loses_accuracy_is_no_answer(tmp_path):
    runner = faster_with("options.checkpoint", True)
    runner.quality = lambda config, seed: 0.5 if config["options.checkpoint"] else 0.9
    best = searched(tmp_path, "options:\n  checkpoint: [false, true]\n", runner).best
    assert best.config["options.checkpoint"] is False


def test_null_is_the_thing_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_SET", "7")
    monkeypatch.delenv("OWN_UNSET", raising=False)
    space = """\
env:
  OWN_SET: {values: [null, "8"], effect: exact}
  OWN_UNSET: {values: [null, "8"], effect: exact}
options: {width: [null, 16]}
"""
    planned = events_of(unstored_in(tmp_path, space), faster_with("options.width", 16))[0]
    domains, baseline = planned.context.space.domains, planned.context.baseline
    assert domains["env.OWN_SET"] == ("7", "8")
    assert domains["env.OWN_UNSET"] == (None, "8")
    assert domains["options.width"] == (8, 16)
    assert (baseline["env.OWN_SET"], baseline["options.width"]) == ("7", 8)


def test_the_older_name_of_a_variable_is_todays_value_and_that_which_trials_get(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:native")
    name, value = "env.PYTORCH_ALLOC_CONF", "expandable_segments:True"
    space = f'env:\n  PYTORCH_ALLOC_CONF: {{values: [null, "{value}"], effect: exact}}\n'
    runner = faster_with(name, value)
    runner.inspected = replace(INSPECTED, machine=cuda_machine())
    best = searched(tmp_path, space, runner).best
    assert best.config[name] == value
    assert best.evidence.baseline.config[name] == "max_split_size_mb:64"
    assert environ_of(best.training_config) == {"PYTORCH_CUDA_ALLOC_CONF": value}


def test_the_values_of_today_are_the_flags_then_the_models_then_the_files(tmp_path):
    space = """\
options:
  width: {values: [16], baseline: 32}
  checkpoint: {values: [true], baseline: true}
"""
    facts = replace(INSPECTED.workload, baseline={"options.checkpoint": False})
    runner = ScriptedRunner(inspected=replace(INSPECTED, workload=facts))
    planned = events_of(unstored_in(tmp_path, space, baseline={"options.width": 64}), runner)[0]
    assert planned.context.baseline.of_kind("options") == {"width": 64, "checkpoint": False}


def test_arguments_that_the_functions_do_not_take_are_told_at_once_with_the_signature(tmp_path):
    space = "options:\n  checkpoints: [true]\n  width: [16]\ndataset_options:\n  size: [1]\n"
    assert refusal(tmp_path, space, baseline={"options.bogus": 1}) == [
        "space.yaml:2:16: options.checkpoints is not an argument of "
        "build_model(checkpoint=False, width=8). Did you mean 'checkpoint'?",
        "space.yaml:5:9: dataset_options.size is not an argument of build_dataset().",
        "--baseline: options.bogus is not an argument of build_model(checkpoint=False, width=8).",
    ]


def test_flags_are_no_knobs_of_a_model_py(tmp_path):
    (line,) = refusal(tmp_path, "flags:\n  --attn: [a, b]\n")
    assert line.startswith("space.yaml:2:11: flags.--attn is for training scripts. Make it")


def test_a_script_has_no_build_functions_and_a_flag_is_set_in_one_place(tmp_path):
    space = "options:\n  width: [1, 2]\nflags:\n  --attn: [a, b]\n"
    space += "  --bs: {values: [1], effect: exact}\n"
    script = ScriptOptions((), (Flag("batch_size", "--bs"),))
    assert [line.partition(". ")[0] for line in refusal(tmp_path, space, script=script)] == [
        "space.yaml:5:18: flags.--bs is what --map batch_size=--bs sets",
        "space.yaml:2:10: options.width is an argument of build_model, and model.py is a "
        "training script",
    ]


def test_a_scripts_flags_are_what_its_arguments_say_and_each_trial_gets_its_own(tmp_path):
    space = """\
flags:
  --attn: {values: [eager, sdpa], effect: exact}
  --depth: {values: [null, 2], effect: exact}
  --fp16: {values: [true], effect: exact}
"""
    script = ScriptOptions(("--attn", "eager", "--depth=1"))
    runner = faster_with("flags.--attn", "sdpa")
    best = searched(tmp_path, space, runner, script=script, trials=6).best
    assert best.config["flags.--attn"] == "sdpa"
    own = {name: value for name, value in best.evidence.baseline.config.items() if "flags" in name}
    assert own == {"flags.--attn": "eager", "flags.--depth": "1", "flags.--fp16": False}
    for job in runner.jobs[2:]:
        assert job.script is not None
        assert job.config is not None
        words = ["--attn", job.config["flags.--attn"], f"--depth={job.config['flags.--depth']}"]
        assert job.script.arguments == (*words, *(["--fp16"] if job.config["flags.--fp16"] else []))


def test_a_study_made_with_another_effect_is_another_study(tmp_path, url):
    space = "options:\n  width: {values: [8, 16], effect: exact}\n"
    for _ in range(2):
        searched(tmp_path, space, faster_with("options.width", 16), storage=url)
    with pytest.raises(StudyMismatchError, match="effects"):
        searched(
            tmp_path,
            space.replace("exact", "numerics"),
            faster_with("options.width", 16),
            storage=url,
        )
