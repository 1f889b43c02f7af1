"""The JSON Schemas accept every file that autotune's own readers accept, and refuse wrong ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.space_file import read_space, shipped_spaces
from autotune.configuration.training_config import TrainingConfig
from autotune.export.schema import Kind, schema
from autotune.knobs import ALL_KNOBS
from autotune.values.errors import UsageError
from autotune.values.strict_yaml import dump, read
from command_line import command
from factories import best_config
from needs import library

ROOT = Path(__file__).parents[2]
RECORDED = sorted(
    path
    for folder in ("studies", "tests", "benchmarks")
    for path in (ROOT / folder).rglob("*.yaml")
    if path.name.endswith(("_best.yaml", "probe_answer.yaml")) or path.name == "best.yaml"
)
SPACES = [
    *shipped_spaces().values(),
    *sorted((ROOT / "studies" / "tables").glob("*.yaml")),
    *sorted((ROOT / "benchmarks").rglob("*space*.yaml")),
]


def faults(kind: Kind, content: Any) -> list[str]:
    """What the real validator says of a file's content."""
    jsonschema = library("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema(kind))
    return [
        one.message for one in jsonschema.Draft202012Validator(schema(kind)).iter_errors(content)
    ]


def content_of(path: Path) -> Any:
    return json.loads(json.dumps(read(path).value))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_recorded_result_fits_its_schema(path: Path) -> None:
    read_best(path)
    assert faults("best", content_of(path)) == []


def test_results_were_recorded() -> None:
    assert len(RECORDED) > 3


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.name)
def test_every_shipped_space_fits_its_schema(path: Path) -> None:
    read_space(path)
    assert faults("space", content_of(path)) == []


def test_a_result_of_this_version_fits_its_schema(tmp_path: Path) -> None:
    config = TrainingConfig.of({"num_workers": 2, "compile_mode": "default"})
    write_best(best_config(config, TrainingConfig.of({})), tmp_path / "best.yaml")
    assert faults("best", content_of(tmp_path / "best.yaml")) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batchsize: [8]\n", "'batchsize' was unexpected"),
        ("batch_size: []\n", "is not valid under any"),
        ("batch_size: [0]\n", "is not valid under any"),
        ("batch_size: {low: 8, high: 64, step: 8, log2: true}\n", "is not valid under any"),
        ("batch_size: {low: 8}\n", "is not valid under any"),
        ("num_threads: [1, 1]\n", "is not valid under any"),
        ("pin_memory: [1]\n", "1 is not one of [False, True]"),
        ("amp_dtype: [half]\n", "'half' is not one of"),
        ("amp_dtype: {low: 1, high: 2}\n", "is not of type 'array'"),
        ("trials: 0\n", "0 is less than the minimum of 1"),
        ("portable: 1\n", "1 is not of type 'boolean'"),
    ],
)
def test_a_wrong_space_is_refused_by_both(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    assert any(said in fault for fault in faults("space", content_of(path)))
    with pytest.raises(UsageError):
        read_space(path)


def without_config(content: Any) -> None:
    del content["config"]


def unknown_knob(content: Any) -> None:
    content["config"]["batchsize"] = 8


def illegal_value(content: Any) -> None:
    content["evidence"]["baseline"]["config"]["amp_dtype"] = "half"


def text_for_a_number(content: Any) -> None:
    content["evidence"]["speedup"]["ratio"] = "fast"


def three_ends(content: Any) -> None:
    content["evidence"]["speedup"]["ci95"] = [1.0, 1.1, 1.2]


def newer_format(content: Any) -> None:
    content["autotune"] = 99


@pytest.mark.parametrize(
    "spoil",
    [without_config, unknown_knob, illegal_value, text_for_a_number, three_ends, newer_format],
)
def test_a_wrong_result_is_refused_by_both(spoil: Callable[[Any], None], tmp_path: Path) -> None:
    config, path = TrainingConfig.of({}), tmp_path / "best.yaml"
    sound = best_config(config, config).model_dump(mode="json")
    assert faults("best", sound) == []
    wrong = copy.deepcopy(sound)
    spoil(wrong)
    assert faults("best", wrong)
    path.write_text(dump(wrong))
    with pytest.raises(UsageError):
        read_best(path)


def test_the_schemas_say_what_each_knob_is() -> None:
    for knob in ALL_KNOBS:
        assert schema("space")["properties"][knob.name]["description"] == knob.summary
        assert (
            schema("best")["$defs"]["Settings"]["properties"][knob.name]["default"] == knob.default
        )


@pytest.mark.parametrize("kind", ["best", "space"])
def test_the_command_prints_a_schema(kind: Kind) -> None:
    assert json.loads(command("schema", kind).out) == schema(kind)
