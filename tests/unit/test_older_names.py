"""Files of earlier versions name knobs as they were called then."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.calling.flag import Flag, flag_from
from autotune.configuration.best_config import read_best
from autotune.configuration.space_file import read_space
from autotune.configuration.training_config import TrainingConfig, setting_faults
from autotune.storage.identity import Identity, differences
from autotune.study.parameters import config_of
from autotune.values.errors import UsageError
from benchmarks.search import TABLES
from benchmarks.table import read_table
from factories import cpu_machine, narrowed, written

STUDIES = Path(__file__).parents[2] / "studies"
FUSED, UNFUSED = TrainingConfig.of({"optimizer_impl": "fused"}), TrainingConfig.of({})
# What the first version knew, in its order.
FIRST = {
    "batch_size": 32, "num_workers": 0, "prefetch_factor": None, "persistent_workers": False,
    "pin_memory": False, "amp_dtype": None, "float32_matmul_precision": "highest",
    "compile_mode": None, "channels_last": False, "cudnn_benchmark": False,
    "fused_optimizer": False, "num_threads": None, "omp_wait_policy": None,
}  # fmt: skip


def test_settings_of_the_first_version_are_those_of_today() -> None:
    assert TrainingConfig.of(FIRST) == UNFUSED
    assert TrainingConfig.of({**FIRST, "fused_optimizer": True}) == FUSED
    assert UNFUSED.replace(fused_optimizer=True) == FUSED
    assert FUSED.replace(fused_optimizer=False) == UNFUSED


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"fused_optimizer": 1}, "fused_optimizer=1 is not possible; expected false or true"),
        ({"fused_optimizer": "foreach"}, "It is called optimizer_impl now."),
        (
            {"fused_optimizer": True, "optimizer_impl": "foreach"},
            "fused_optimizer is the older name of optimizer_impl, which is set as well",
        ),
    ],
)
def test_a_value_that_the_older_knob_never_had_is_a_fault(
    settings: dict[str, object], fault: str
) -> None:
    assert fault in setting_faults(settings)["fused_optimizer"]


def test_a_space_by_the_older_name_has_the_values_of_today(tmp_path: Path) -> None:
    path = written(tmp_path, "fused_optimizer: [false, true]\n")
    assert read_space(path).offers == {"optimizer_impl": (None, "fused")}
    assert narrowed(path, cpu_machine()).varied() == {"optimizer_impl": (None, "fused")}


@pytest.mark.parametrize("values", ["[false, maybe]", "true", "[]"])
def test_a_fault_of_an_older_name_in_a_space_has_its_place(tmp_path: Path, values: str) -> None:
    path = written(tmp_path, f"batch_size: [8]\nfused_optimizer: {values}\n")
    with pytest.raises(UsageError, match=r"space\.yaml:2:1: fused_optimizer"):
        read_space(path)


def test_a_switch_by_the_older_name_is_given_for_the_same_kernel() -> None:
    assert flag_from("fused_optimizer:true=--fused") == Flag("optimizer_impl", "--fused", "fused")
    with pytest.raises(UsageError, match="map its values one by one"):
        flag_from("fused_optimizer=--fused")


@pytest.mark.parametrize("name", ["photos_jpeg", "char_transformer"])
def test_recorded_answers_are_read(name: str) -> None:
    path = STUDIES / name / "recorded_best.yaml"
    assert "fused_optimizer" in path.read_text()
    assert read_best(path).training_config["optimizer_impl"] in (None, "fused")


def test_a_recorded_table_has_every_knob_of_today() -> None:
    table = read_table(TABLES / "digits_cnn.jsonl.xz")
    assert table.header.space["optimizer_impl"] == (None, "fused")
    assert table.header.space["compile_dynamic"] == (None,)
    assert set(table.header.space) == set(table.baseline.every())
    assert {config["optimizer_impl"] for config in table.timed} == {None, "fused"}


def test_parameters_of_an_older_trial_are_its_configuration(tmp_path: Path) -> None:
    space = narrowed(written(tmp_path, "optimizer_impl: [null, fused]\n"), cpu_machine())
    config = config_of({"fused_optimizer": True}, space)
    assert config["optimizer_impl"] == "fused"


def test_an_older_study_is_the_one_that_it_was() -> None:
    older = {
        "baseline": FIRST,
        "space": {n: [v] for n, v in FIRST.items()} | {"fused_optimizer": [False, True]},
        "machine": "0123",
    }
    today = {"optimizer_impl": [None, "fused"]}
    space = {name: [value] for name, value in UNFUSED.as_dict().items()} | today
    identity = {"baseline": UNFUSED.as_dict(), "space": space, "machine": "0123"}
    assert differences(older, identity) == []
    wider = {**identity, "space": {**space, "compile_dynamic": [None, True]}}
    assert len(differences(older, wider)) == 1
    known = Identity(older).space
    assert known is not None
    assert known.varied() == {"optimizer_impl": (None, "fused")}
    assert known.size == 2


def test_keys_of_an_older_study_find_what_it_noted() -> None:
    key = (
        "batch_size=32,amp_dtype=null,float32_matmul_precision=highest,compile_mode=null,"
        "channels_last=false,cudnn_benchmark=false,fused_optimizer=true"
    )
    assert FUSED.quality_key() == key
    assert UNFUSED.quality_key() == key.replace("true", "false")
    assert UNFUSED.replace(optimizer_impl="foreach").quality_key().endswith("_impl=foreach")
    compiled = FUSED.replace(compile_mode="default", compile_dynamic=True)
    assert "compile_dynamic=true" in compiled.quality_key()


def test_a_study_that_knows_no_modules_outside_of_its_folder_goes_on() -> None:
    inside, outside = {"net.py": "1" * 64}, {"../shared.py": "2" * 64}
    assert differences({"modules": inside}, {"modules": inside | outside}) == []
    assert differences({}, {"modules": outside}) == []
    assert differences({"modules": None}, {"modules": outside}) == []
    changed = differences({"modules": inside | outside}, {"modules": {"../shared.py": "3" * 64}})
    assert [line.partition(":")[0].strip() for line in changed] == ["../shared.py", "net.py"]
