"""The answer in other forms: what each says, and what each says that it leaves out."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from answers import on_cpu, on_four_gpus, on_gpu, on_two_hosts, sharded
from autotune.configuration.best_config import BestConfig
from autotune.configuration.evidence import LearningRate
from autotune.configuration.training_config import TrainingConfig
from autotune.export import FORMATS, export
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Knob
from covering import covers
from factories import best_config, written

CONFIG = TrainingConfig.of({"batch_size": 64, "num_workers": 2, "num_threads": 3})
BEST = best_config(CONFIG, TrainingConfig.of({}))
SCALED = BEST.model_copy(update={"lr_scaling": LearningRate(rule="linear", factor=4.0)})
COMMENTED = [name for name in FORMATS if name != "json"]


def values(best: BestConfig, form: str) -> dict[str, object]:
    """Return what a reader of YAML or JSON finds in a form."""
    loaded = yaml.safe_load(export(best, form).text)
    assert isinstance(loaded, dict)
    return loaded


def shown_by(script: str, *names: str) -> str:
    """Environment variables as a shell has them after a script."""
    command = script + 'echo "' + " ".join(f"${name}" for name in names) + '"'
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_a_learning_rate_that_is_not_model_pys_own_is_carried_or_named() -> None:
    names: dict[str, object] = {}
    exec(export(SCALED, "python").text, names)
    assert names["LR_FACTOR"] == 4
    assert json.loads(export(SCALED, "json").text) == {**CONFIG.as_dict(), "lr_factor": 4}
    for form in FORMATS.keys() - {"python", "json"}:
        assert "lr_factor" in export(SCALED, form).dropped
        assert "lr_factor" not in export(BEST, form).dropped


def is_set(knob: Knob, best: BestConfig) -> bool:
    return best.training_config[knob.name] != knob.default


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("knob", ALL_KNOBS, ids=lambda knob: knob.name)
def test_no_setting_vanishes(form: str, knob: Knob) -> None:
    """Taking a setting back changes what is said, or what is said to be left out."""
    best = next(one for one in (on_gpu(), on_four_gpus(), sharded()) if is_set(knob, one))
    config = best.training_config.replace(**{knob.name: knob.default}).as_dict()
    assert export(best.model_copy(update={"config": config}), form) != export(best, form)


@pytest.mark.parametrize("form", FORMATS)
def test_no_form_invents_processes_where_hosts_have_unequally_many(form: str) -> None:
    best = on_two_hosts().model_copy(update={"processes": 5, "processes_per_host": 4})
    exported = export(best, form)
    invented = ("num_processes: 5", "devices: 4", "--nproc-per-node 4")
    assert not [word for word in invented if word in exported.text]
    assert "processes=5" in exported.dropped.get("processes", "") or form in (
        *("json", "python"),
        "torchrun",  # which asks for each host's number
    )


def test_no_form_trains_a_sharded_model_by_ddp_without_a_word() -> None:
    words = {"accelerate": "distributed_type: FSDP", "hf": "fsdp: true"}
    for form in FORMATS.keys() - {"json", "python"}:
        exported = export(sharded(), form)
        assert "sharding" not in exported.dropped if form in words else exported.dropped["sharding"]
        assert words.get(form, "") in exported.text
        plan = "\n".join(line for line in exported.text.splitlines() if line[:1] != "#")
        assert not [w for w in ("strategy: ddp", "ddp_", "MULTI_GPU") if w in plan], form


@pytest.mark.parametrize("form", ["accelerate", "hf"])
def test_sharding_on_a_cpu_which_accelerate_cannot_is_named(form: str) -> None:
    best = sharded().model_copy(update={"machine": on_cpu().machine})
    exported = export(best, form)
    assert {"sharding", "processes"} <= exported.dropped.keys()
    assert "fsdp" not in exported.text.partition("\nuse_cpu")[2].lower()


def test_threads_that_accelerate_would_choose_itself_are_named() -> None:
    best = on_cpu(num_threads=None)
    assert "OMP_NUM_THREADS" in export(best, "accelerate").dropped["num_threads"]
    assert "num_threads" not in export(best, "torchrun").dropped


@pytest.mark.parametrize("form", COMMENTED)
def test_a_setting_that_is_left_out_is_a_comment_as_well(form: str) -> None:
    exported = export(on_gpu(), form)
    comments = [line for line in exported.text.splitlines() if line.startswith("#")]
    for way in exported.dropped.values():
        assert f"#   {way}" in comments
    assert "study tiny" in comments[0]
    assert "0123456789ab" in comments[1]


@pytest.mark.parametrize("form", COMMENTED)
def test_nothing_in_the_file_can_leave_its_comment(form: str) -> None:
    nasty = "x\ntouch here\r\x85y\u2028z: [\ufffe"
    source = BEST.provenance.model_copy(update={"study": nasty})
    machine = BEST.machine.model_copy(update={"cpu": nasty})
    strange = BEST.model_copy(update={"provenance": source, "machine": machine})

    def code(best: BestConfig) -> list[str]:
        return [x for x in export(best, form).text.splitlines() if not x.startswith("#")]

    assert code(strange) == code(BEST)


def test_python_runs_and_gives_the_same_settings() -> None:
    names: dict[str, object] = {}
    exec(export(on_gpu(), "python").text, names)
    assert names["SETTINGS"] == on_gpu().config


@covers("X3")
def test_a_shell_reads_the_environment_that_was_exported() -> None:
    script = export(BEST, "env").text
    assert shown_by(script, "OMP_NUM_THREADS", "TORCH_COMPILE_DISABLE") == "3 1"


def test_variables_that_a_process_must_be_started_with_are_exported() -> None:
    best = best_config(CONFIG.replace(omp_wait_policy="passive"), TrainingConfig.of({}))
    assert shown_by(export(best, "env").text, "OMP_WAIT_POLICY") == "PASSIVE"
    assert "omp_wait_policy" not in export(best, "env").dropped
    (command,) = [
        line for line in export(best, "torchrun").text.splitlines() if not line.startswith("#")
    ]
    assert {"OMP_WAIT_POLICY=PASSIVE", "OMP_NUM_THREADS=3"} <= set(shlex.split(command))


def test_the_environment_names_the_settings_that_it_cannot_carry() -> None:
    dropped = export(BEST, "env").dropped
    assert dropped["batch_size"] == "batch_size=64: DataLoader(batch_size=...)"
    assert "num_workers" in dropped
    assert not {"num_threads", "compile_mode", "prefetch_factor"} & dropped.keys()


@pytest.mark.parametrize("form", ["env", "torchrun", "accelerate"])
def test_a_batch_size_is_named_also_where_it_is_the_usual_one(form: str) -> None:
    assert on_cpu().config["batch_size"] == 32
    assert "batch_size" in export(on_cpu(), form).dropped


@pytest.mark.parametrize(
    ("precision", "mode", "tf32"),
    [
        ("high", None, True),
        ("high", "default", True),
        ("highest", None, None),
        ("highest", "default", False),
    ],
)
def test_transformers_is_told_of_tf32_wherever_it_would_decide_itself(
    precision: str, mode: str | None, tf32: bool | None
) -> None:
    best = on_gpu()
    config = best.training_config.replace(float32_matmul_precision=precision, compile_mode=mode)
    best = best.model_copy(update={"config": config.as_dict()})
    assert values(best, "hf").get("tf32") is tf32
    assert "float32_matmul_precision" not in export(best, "hf").dropped


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_tf32_is_no_word_for_precisions_of_a_cpu(precision: str) -> None:
    best = on_cpu(float32_matmul_precision=precision, compile_mode="default")
    assert values(best, "hf")["tf32"] is False
    assert "float32_matmul_precision" in export(best, "hf").dropped


def test_the_optimizer_of_transformers_is_named_only_where_it_is_fused() -> None:
    assert "optim" not in values(on_cpu(), "hf"), "which one it is, is the user's"
    assert (
        export(on_cpu(), "hf")
        .dropped["optimizer_impl"]
        .startswith("optimizer_impl=null: optim=adamw_torch where yours is AdamW")
    )
    foreach = export(on_cpu(optimizer_impl="foreach"), "hf").dropped["optimizer_impl"]
    assert "foreach=True" in foreach
    assert values(on_gpu(), "hf")["optim"] == "adamw_torch_fused"
    assert "optimizer_impl" not in export(on_gpu(), "hf").dropped
    assert "leave out optim where yours is not AdamW" in export(on_gpu(), "hf").use


def test_fields_that_the_installed_transformers_lacks_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from the source of a package that is older than the fields."""
    fields = values(on_gpu(), "hf").keys() - {"torch_compile_mode"}
    (tmp_path / "transformers").mkdir()
    source = "class TrainingArguments:\n" + "".join(
        f"    {name}: object = None\n" for name in fields
    )
    written(tmp_path / "transformers", "", "__init__.py")
    written(tmp_path / "transformers", source, "training_args.py")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    exported = export(on_gpu(), "hf")
    assert exported.dropped["compile_mode"] == (
        "compile_mode=max-autotune: the installed transformers has no torch_compile_mode"
    )
    left = yaml.safe_load(exported.text)
    assert not [name for name in left if name.startswith("torch_compile")], "all of it or nothing"
    assert left["optim"] == "adamw_torch_fused"


@pytest.mark.parametrize("dynamic", [None, False, True])
def test_accelerate_has_no_word_for_the_compilers_own_choice_of_shapes(
    dynamic: bool | None,
) -> None:
    best = on_gpu()
    config = best.training_config.replace(compile_dynamic=dynamic).as_dict()
    exported = export(best.model_copy(update={"config": config}), "accelerate")
    found = yaml.safe_load(exported.text)["dynamo_config"]["dynamo_use_dynamic"]
    assert found == bool(dynamic)
    assert ("compile_dynamic" in exported.dropped) == (dynamic is None)


def test_float16_on_a_cpu_is_left_out_where_lightning_would_change_it_silently() -> None:
    best = on_cpu(amp_dtype="float16")
    assert values(best, "lightning")["trainer"]["precision"] == "32-true"  # type: ignore[index]
    assert "bfloat16" in export(best, "lightning").dropped["amp_dtype"]
    assert "amp_dtype" not in export(on_cpu(amp_dtype="bfloat16"), "lightning").dropped


def test_float16_on_a_cpu_is_left_out_where_it_would_be_refused() -> None:
    best = on_cpu(amp_dtype="float16")
    assert values(best, "accelerate")["mixed_precision"] == "no"
    assert not values(best, "hf").get("fp16")
    for form in ("accelerate", "hf"):
        assert "amp_dtype" in export(best, form).dropped
        assert "amp_dtype" not in export(on_gpu(), form).dropped


def test_the_command_line_offers_exactly_the_formats_that_exist() -> None:
    from autotune.cli import cli

    command = cli.commands["export"]
    (choice,) = [option.type for option in command.params if option.name == "form"]
    assert list(choice.choices) == list(FORMATS)  # type: ignore[attr-defined]


SPLIT = best_config(CONFIG.replace(accumulation_steps=4), TrainingConfig.of({}))


def test_the_batches_of_an_optimizer_step_are_in_the_words_of_each_tool() -> None:
    assert values(SPLIT, "hf")["gradient_accumulation_steps"] == 4
    assert values(SPLIT, "lightning")["trainer"]["accumulate_grad_batches"] == 4  # type: ignore[index]
    accelerate = export(SPLIT, "accelerate")
    launch = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4 accelerate launch"
    assert launch in accelerate.use
    assert "`use`" in accelerate.dropped["accumulation_steps"]
    for form in ("env", "torchrun"):
        assert "accumulation_steps=4" in export(SPLIT, form).dropped["accumulation_steps"]
