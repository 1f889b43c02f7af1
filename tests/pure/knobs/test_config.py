"""Configurations: what is legal, and the one form of each."""

import pytest

from autotune.configuration.training_config import TrainingConfig, render
from autotune.knobs import ALL_KNOBS
from autotune.values.errors import UsageError
from factories import cpu_machine


def test_settings_that_are_not_named_are_pytorchs_defaults():
    config = TrainingConfig.of({})
    assert config["batch_size"] == 32
    assert config["num_workers"] == 0
    assert config["float32_matmul_precision"] == "highest"
    assert config["compile_mode"] is None


@pytest.mark.parametrize(
    ("asked", "prefetch", "persistent"),
    [
        ({"prefetch_factor": 8, "persistent_workers": True}, None, False),
        ({"num_workers": 2, "persistent_workers": True}, 2, True),
        ({"num_workers": 2, "prefetch_factor": None}, 2, False),
    ],
    ids=str,
)
def test_settings_of_workers_are_idle_without_them_and_have_defaults_with_them(
    asked, prefetch, persistent
):
    config = TrainingConfig.of(asked)
    assert (config["prefetch_factor"], config["persistent_workers"]) == (prefetch, persistent)


def test_switching_workers_off_makes_their_settings_idle():
    config = TrainingConfig.of({"num_workers": 4, "prefetch_factor": 8})
    assert config.replace(num_workers=0) == TrainingConfig.of({})


def test_equal_settings_are_one_key_of_a_dict():
    first = TrainingConfig.of({"batch_size": 64, "num_workers": 0})
    second = TrainingConfig.of({"prefetch_factor": 4, "batch_size": 64})
    assert {first: "measured"}[second] == "measured"


def test_a_configuration_lists_every_knob_in_the_order_of_the_registry():
    listed = [knob.name for knob in ALL_KNOBS if not knob.of_ranks]
    assert list(TrainingConfig.of({}).as_dict()) == listed


def test_knobs_of_several_processes_are_listed_where_they_are_set():
    config = TrainingConfig.of({"ddp_bucket_mb": 50, "gradient_as_bucket_view": False})
    assert config.as_dict().keys() - TrainingConfig.of({}).as_dict().keys() == {"ddp_bucket_mb"}


def test_all_faults_are_named_at_once():
    with pytest.raises(UsageError) as caught:
        TrainingConfig.of({"num_worker": 2, "batch_size": 0, "pin_memory": 1, "amp_dtype": None})
    assert str(caught.value).splitlines() == [
        "unknown setting 'num_worker'. Did you mean 'num_workers'?",
        "batch_size=0 is not possible; expected an integer from 1 to 1048576.",
        "pin_memory=1 is not possible; expected false or true.",
    ]


@pytest.mark.parametrize(
    ("name", "value"), [("num_workers", 4), ("pin_memory", True), ("num_threads", 3)], ids=str
)
def test_settings_that_cannot_change_the_model_share_a_quality_key(name, value):
    assert TrainingConfig.of({name: value}).quality_key() == TrainingConfig.of({}).quality_key()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 64),
        ("amp_dtype", "bfloat16"),
        ("float32_matmul_precision", "high"),
        *(("compile_mode", "default"), ("channels_last", True), ("cudnn_benchmark", True)),
        *(("optimizer_impl", "fused"), ("optimizer_impl", "forloop")),
    ],
    ids=str,
)
def test_settings_that_can_change_the_model_change_the_quality_key(name, value):
    assert TrainingConfig.of({name: value}).quality_key() != TrainingConfig.of({}).quality_key()


def test_differences_name_only_what_the_other_does_not_share():
    config = TrainingConfig.of({"num_workers": 2, "batch_size": 64})
    assert config.differences(TrainingConfig.of({"batch_size": 64})) == {
        "num_workers": 2,
        "prefetch_factor": 2,
    }


def test_resolving_replaces_null_threads_by_what_pytorch_takes():
    assert TrainingConfig.of({}).resolved(cpu_machine(6))["num_threads"] == 6
    assert TrainingConfig.of({"num_threads": 1}).resolved(cpu_machine(6))["num_threads"] == 1


def test_settings_are_rendered_as_people_write_them():
    text = render({"batch_size": 64, "amp_dtype": None, "pin_memory": True})
    assert text == "batch_size=64, amp_dtype=null, pin_memory=true"
