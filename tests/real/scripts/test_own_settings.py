"""What a script sets itself is replaced by other values, and its own are left to it."""

import pytest
import torch
from torch import nn

from asked_scripts import LONG, SCRIPTS, observed
from autotune.configuration.best_config import write_best
from autotune.configuration.job import Measure
from autotune.knobs.base import spelled
from autotune.process.common.imports import undo_all
from autotune.scripting.wrappers import change_compilation
from autotune.values.outcome import Measured, NotApplied
from children import QUICK, autotune, measured
from factories import best_config
from tuned_scripts import BASELINE, report_of

OF_PROCESS = {
    "num_threads": 2,
    "float32_matmul_precision": "high",
    "cudnn_benchmark": True,
    "deterministic": True,
}
OWN = {**OF_PROCESS, "optimizer_impl": "foreach"}
COMPILED = {"compile_mode": "default", "compile_dynamic": None}
ENDLESS = "1000000"
OTHERS = {
    "num_threads": 1,
    "float32_matmul_precision": "medium",
    "cudnn_benchmark": False,
    "deterministic": False,
    "optimizer_impl": "fused",
}


def replacing(ask, script, *words, settings, own=OWN):
    ask.own = own
    return ask(script, *words, task=Measure(QUICK), settings=settings, asked=tuple(settings))


def ran(folder, script, *words, own=OWN, **settings):
    """Return what the script printed that was measured with its own, and what autotune said."""
    untouched = BASELINE.replace(**own)
    best = best_config(untouched.replace(**settings), untouched)
    provenance = best.provenance.model_copy(update={"model": script})
    write_best(best.model_copy(update={"provenance": provenance}), folder / "best.yaml")
    done = autotune(folder, "run", "--allow-numerics", "best.yaml", SCRIPTS / script, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout, report_of(done)


def test_what_a_script_sets_itself_is_its_own_and_can_be_replaced(ask):
    seen = observed(ask("tuned.py", "forever"))
    assert set(seen.own) == OWN.keys()
    assert seen.fixed == {}
    assert {name: seen.workload.baseline[name] for name in OWN} == OWN


@pytest.mark.parametrize("way", ["", "in a thread", "again", "workers"])
def test_other_values_take_the_place_of_a_script_s_own_whenever_it_sets_them(ask, way):
    measured(replacing(ask, "tuned.py", "forever", way, settings=OTHERS))


@pytest.mark.parametrize(
    ("way", "knob", "other", "found"),
    [
        ("resumes", "optimizer_impl", "fused", "foreach"),
        ("each backend", "float32_matmul_precision", "medium", "highest"),
    ],
)
def test_a_value_that_is_not_in_force_at_the_end_cannot_win(ask, way, knob, other, found):
    outcome = replacing(ask, "tuned.py", "forever", way, settings={knob: other})
    assert outcome == NotApplied(knob, other, found)


def test_a_run_replaces_what_the_measured_trial_did(tmp_path):
    printed, (applied,) = ran(tmp_path, "tuned.py", **OTHERS)
    assert printed == "1 medium False False [True]\n"
    assert "num_threads=1" in applied
    assert "optimizer_impl=fused" in applied
    printed, (applied,) = ran(tmp_path, "tuned.py", num_threads=1)
    assert printed == "1 high True True [True]\n"


def test_an_optimizer_that_refuses_another_kernel_gets_its_own_arguments(tmp_path):
    words, own = ("tuned.py", "rate in a tensor"), {**OWN, "optimizer_impl": "forloop"}
    printed, (applied, refused) = ran(tmp_path, *words, own=own, optimizer_impl="foreach")
    assert printed == "2 high True True [False]\n"
    assert "optimizer_impl" not in applied
    assert refused.startswith("not applied: optimizer_impl=foreach (ValueError: lr as a Tensor")


@pytest.mark.parametrize("way", ["wrapper", "in place"])
def test_a_model_that_the_script_compiles_is_run_without(ask, way):
    seen = observed(ask("compiles_itself.py", way, ENDLESS))
    assert seen.own == ("compile_mode", "compile_dynamic")
    assert seen.fixed["compile_scope"] == "the script itself chooses what it compiles"
    assert seen.workload.baseline["compile_mode"] == "default"
    settings = {"compile_mode": None}
    outcome = replacing(ask, "compiles_itself.py", way, ENDLESS, settings=settings, own=COMPILED)
    assert isinstance(outcome, Measured), outcome
    assert outcome.measurement.compile_seconds == 0


def test_a_model_that_the_script_compiles_gets_other_arguments(ask):
    settings = {"compile_mode": "lite", "compile_dynamic": True}
    words = ("compiles_itself.py", "wrapper", ENDLESS)
    run = measured(replacing(ask, *words, settings=settings, own=COMPILED))
    assert run.compile_seconds > 0


@pytest.mark.parametrize("way", ["options", "backend"])
def test_what_the_script_compiles_in_a_way_of_its_own_stays(ask, way):
    seen = observed(ask("compiles_itself.py", way, ENDLESS))
    why = "the script compiles with a backend or options of its own"
    for name in ("compile_mode", "compile_dynamic", "compile_scope"):
        assert seen.fixed[name] == why
    settings = {"compile_mode": "lite"}
    outcome = replacing(ask, "compiles_itself.py", way, ENDLESS, settings=settings, own=COMPILED)
    assert outcome == NotApplied("compile_mode", "lite", "default")


@pytest.mark.parametrize(
    ("way", "found"),
    [
        ("stance", "default"),
        ("nested", "the script calls its model only inside code that it compiles"),
    ],
)
def test_a_script_that_compiles_all_the_same_cannot_win(ask, way, found):
    value = None if way == "stance" else "lite"
    settings = {"compile_mode": value}
    outcome = replacing(ask, "compiles_itself.py", way, ENDLESS, settings=settings, own=COMPILED)
    assert outcome == NotApplied("compile_mode", spelled(value), found)


def test_a_run_without_compilation_has_the_same_keys(tmp_path):
    words, own = ("compiles_itself.py", "wrapper", "6"), {"compile_mode": "default"}
    printed, (applied,) = ran(tmp_path, *words, own=own, compile_mode=None)
    assert printed == "_orig_mod.0.weight\n"
    assert "compile_mode=null" in applied


def test_a_call_of_the_compiler_that_fails_is_repeated_with_its_own_arguments():
    failed = []
    change_compilation({"mode": "unheard of"}, failed.append)
    try:
        model = torch.compile(nn.Linear(2, 1), backend="inductor", dynamic=True)
    finally:
        undo_all()
    assert "unheard of" in str(failed.pop())
    assert isinstance(model.get_compiler_config(), dict)


def dtypes_said(ask):
    return (ask.folder / "stdout.log").read_text().strip()


@pytest.mark.parametrize("way", ["outside", "inside"])
def test_the_script_s_autocast_runs_in_another_format(ask, way):
    words, own = ("autocasts.py", way, ENDLESS), {"amp_dtype": "bfloat16"}
    seen = observed(ask(*words))
    assert seen.own == ("amp_dtype",)
    assert seen.workload.baseline["amp_dtype"] == "bfloat16"
    assert not seen.scales
    measured(replacing(ask, *words, settings={"amp_dtype": None}, own=own))
    assert dtypes_said(ask) == "torch.float32"


def test_a_script_that_scales_its_loss_may_run_in_either_format(ask):
    words, own = ("autocasts.py", "scales", ENDLESS), {"amp_dtype": "float16"}
    seen = observed(ask(*words))
    assert seen.scales
    assert seen.workload.baseline["amp_dtype"] == "float16"
    measured(replacing(ask, *words, settings={"amp_dtype": "bfloat16"}, own=own))
    assert dtypes_said(ask) == "torch.bfloat16"


def test_code_compiled_in_one_format_is_not_used_for_another(ask):
    """Autocast within a compiled model stands in the key of compiled code as the script has it."""
    words, own = ("autocasts.py", "compiled", ENDLESS), {"amp_dtype": "bfloat16"}
    for value in ("bfloat16", None):
        measured(replacing(ask, *words, settings={"amp_dtype": value}, own=own))
        assert dtypes_said(ask) == f"torch.{value or 'float32'}"


def test_parameters_in_half_precision_keep_autocast(ask):
    seen = observed(ask("autocasts.py", "short", ENDLESS))
    assert seen.fixed["amp_dtype"] == "the script's model has parameters in half precision"


def test_autocast_that_is_switched_on_in_another_way_cannot_be_replaced(ask):
    words, own = ("autocasts.py", "by hand", ENDLESS), {"amp_dtype": "bfloat16"}
    outcome = replacing(ask, *words, settings={"amp_dtype": None}, own=own)
    assert outcome == NotApplied("amp_dtype", "null", "bfloat16")


def test_a_run_replaces_autocast_in_training_alone(tmp_path):
    words, own = ("autocasts.py", "outside", "9"), {"amp_dtype": "bfloat16"}
    printed, (applied,) = ran(tmp_path, *words, own=own, amp_dtype=None)
    assert printed == "torch.float32\nevaluates in torch.bfloat16\n"
    assert "amp_dtype=null" in applied


def test_a_script_that_sets_everything_by_hand_is_tried_with_other_settings(ask):
    """One that sets what loops of today set: nothing but the batch size would be left."""
    own = {
        "amp_dtype": "bfloat16",
        "compile_mode": "default",
        "compile_dynamic": None,
        "optimizer_impl": "fused",
        "float32_matmul_precision": "high",
    }
    seen = observed(ask("tuned_gpt.py", ENDLESS))
    assert set(seen.own) == own.keys()
    assert {name: seen.workload.baseline[name] for name in own} == own
    settings = {
        "amp_dtype": None,
        "compile_mode": None,
        "optimizer_impl": "foreach",
        "float32_matmul_precision": "highest",
    }
    run = measured(replacing(ask, "tuned_gpt.py", ENDLESS, settings=settings, own=own))
    assert run.compile_seconds == 0
    assert dtypes_said(ask) == "torch.float32"
    measured(replacing(ask, "tuned_gpt.py", ENDLESS, settings={"amp_dtype": None}, own=own))
    assert dtypes_said(ask) == "torch.float32"


OF_STEPS = {"gc": 10, "merge_param_groups": True, "fill_uninitialized_memory": False}


def test_settings_of_steps_are_in_force_in_a_trial(ask):
    facts = observed(ask("groups.py", "forever")).workload
    assert facts.equal_groups
    assert facts.fills_memory, "as a mode that only warns does, too"
    assert 0 <= facts.collections < 10
    facts = observed(ask("plain_loop.py", *LONG)).workload
    assert not facts.equal_groups
    assert not facts.fills_memory
    measured(replacing(ask, "groups.py", "forever", settings=OF_STEPS, own={}))
    outcome = replacing(ask, "plain_loop.py", *LONG, settings={"merge_param_groups": True}, own={})
    assert outcome == NotApplied("merge_param_groups", "true", "false")


def test_a_run_has_what_acts_in_steps_and_trains_as_before(tmp_path):
    before, _ = ran(tmp_path, "groups.py", own={})
    assert before.startswith("True True ")
    printed, (applied,) = ran(tmp_path, "groups.py", own={}, **OF_STEPS)
    assert printed == before.replace("True True", "False False")
    for name, value in OF_STEPS.items():
        assert f"{name}={spelled(value)}" in applied
