"""The answer in other forms: what each says, and what each says that it leaves out."""

import json
import shlex
import subprocess

import pytest
import yaml

from answers import on_cpu, on_four_gpus, on_gpu
from autotune.configuration.evidence import LearningRate
from autotune.configuration.training_config import TrainingConfig
from autotune.export import FORMATS, export
from autotune.knobs import ALL_KNOBS
from covering import covers
from factories import best_config

CONFIG = TrainingConfig.of({"batch_size": 64, "num_workers": 2, "num_threads": 3})
BEST = best_config(CONFIG, TrainingConfig.of({}))
SCALED = BEST.model_copy(update={"lr_scaling": LearningRate(rule="linear", factor=4.0)})
COMMENTED = [name for name in FORMATS if name != "json"]


def values(best, form):
    """Return what a reader of YAML or JSON finds in a form."""
    loaded = yaml.safe_load(export(best, form).text)
    assert isinstance(loaded, dict)
    return loaded


def shown_by(script, *names):
    """Environment variables as a shell has them after a script."""
    command = script + 'echo "' + " ".join(f"${name}" for name in names) + '"'
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_a_learning_rate_that_is_not_model_pys_own_is_carried_or_named():
    names = {}
    exec(export(SCALED, "python").text, names)
    assert names["LR_FACTOR"] == 4
    assert json.loads(export(SCALED, "json").text) == {**CONFIG.as_dict(), "lr_factor": 4}
    for form in FORMATS.keys() - {"python", "json"}:
        assert "lr_factor" in export(SCALED, form).dropped
        assert "lr_factor" not in export(BEST, form).dropped


def is_set(knob, best):
    return best.training_config[knob.name] != knob.default


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("knob", ALL_KNOBS, ids=lambda knob: knob.name)
def test_no_setting_vanishes(form, knob):
    """Taking a setting back changes what is said, or what is said to be left out."""
    best = next(one for one in (on_gpu(), on_four_gpus()) if is_set(knob, one))
    config = best.training_config.replace(**{knob.name: knob.default}).as_dict()
    assert export(best.model_copy(update={"config": config}), form) != export(best, form)


@pytest.mark.parametrize("form", COMMENTED)
def test_a_setting_that_is_left_out_is_a_comment_as_well(form):
    exported = export(on_gpu(), form)
    comments = [line for line in exported.text.splitlines() if line.startswith("#")]
    for way in exported.dropped.values():
        assert f"#   {way}" in comments
    assert "study tiny" in comments[0]
    assert "0123456789ab" in comments[1]


@pytest.mark.parametrize("form", COMMENTED)
def test_nothing_in_the_file_can_leave_its_comment(form):
    nasty = "x\ntouch here\r\x85y\u2028z: [\ufffe"
    source = BEST.provenance.model_copy(update={"study": nasty})
    machine = BEST.machine.model_copy(update={"cpu": nasty})
    strange = BEST.model_copy(update={"provenance": source, "machine": machine})

    def code(best):
        return [x for x in export(best, form).text.splitlines() if not x.startswith("#")]

    assert code(strange) == code(BEST)


def test_python_runs_and_gives_the_same_settings():
    names = {}
    exec(export(on_gpu(), "python").text, names)
    assert names["SETTINGS"] == on_gpu().config


@covers("X3")
def test_a_shell_reads_the_environment_that_was_exported():
    script = export(BEST, "env").text
    assert shown_by(script, "OMP_NUM_THREADS", "TORCH_COMPILE_DISABLE") == "3 1"


def test_variables_that_a_process_must_be_started_with_are_exported():
    best = best_config(CONFIG.replace(**{"env.OMP_WAIT_POLICY": "PASSIVE"}), TrainingConfig.of({}))
    assert shown_by(export(best, "env").text, "OMP_WAIT_POLICY") == "PASSIVE"
    assert "env.OMP_WAIT_POLICY" not in export(best, "env").dropped
    (command,) = [
        line for line in export(best, "torchrun").text.splitlines() if not line.startswith("#")
    ]
    assert {"OMP_WAIT_POLICY=PASSIVE", "OMP_NUM_THREADS=3"} <= set(shlex.split(command))


@pytest.mark.parametrize(
    ("precision", "mode", "tf32"),
    [
        *(("high", None, True), ("high", "default", True), ("highest", None, None)),
        ("highest", "default", False),
    ],
)
def test_transformers_is_told_of_tf32_wherever_it_would_decide_itself(precision, mode, tf32):
    best = on_gpu()
    config = best.training_config.replace(float32_matmul_precision=precision, compile_mode=mode)
    best = best.model_copy(update={"config": config.as_dict()})
    assert values(best, "hf").get("tf32") is tf32
    assert "float32_matmul_precision" not in export(best, "hf").dropped


def test_the_optimizer_of_transformers_is_named_only_where_it_is_fused():
    assert "optim" not in values(on_cpu(), "hf"), "which one it is, is the user's"
    assert (
        export(on_cpu(), "hf")
        .dropped["optimizer_impl"]
        .startswith("optimizer_impl=null: optim=adamw_torch if yours is AdamW")
    )
    foreach = export(on_cpu(optimizer_impl="foreach"), "hf").dropped["optimizer_impl"]
    assert "foreach=True" in foreach
    assert values(on_gpu(), "hf")["optim"] == "adamw_torch_fused"
    assert "optimizer_impl" not in export(on_gpu(), "hf").dropped
    assert "leave out optim if yours is not AdamW" in export(on_gpu(), "hf").use


@pytest.mark.parametrize("dynamic", [None, False, True])
def test_accelerate_has_no_word_for_the_compilers_own_choice_of_shapes(dynamic):
    best = on_gpu()
    config = best.training_config.replace(compile_dynamic=dynamic).as_dict()
    exported = export(best.model_copy(update={"config": config}), "accelerate")
    found = yaml.safe_load(exported.text)["dynamo_config"]["dynamo_use_dynamic"]
    assert found == bool(dynamic)
    assert ("compile_dynamic" in exported.dropped) == (dynamic is None)


def test_float16_on_a_cpu_is_left_out_where_lightning_would_change_it_silently():
    best = on_cpu(amp_dtype="float16")
    assert values(best, "lightning")["trainer"]["precision"] == "32-true"
    assert "bfloat16" in export(best, "lightning").dropped["amp_dtype"]
    assert "amp_dtype" not in export(on_cpu(amp_dtype="bfloat16"), "lightning").dropped


def test_float16_on_a_cpu_is_left_out_where_it_would_be_refused():
    best = on_cpu(amp_dtype="float16")
    assert values(best, "accelerate")["mixed_precision"] == "no"
    assert not values(best, "hf").get("fp16")
    for form in ("accelerate", "hf"):
        assert "amp_dtype" in export(best, form).dropped
        assert "amp_dtype" not in export(on_gpu(), form).dropped
