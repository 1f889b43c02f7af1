"""The JSON Schemas accept every file that autotune's own readers accept, and refuse wrong ones."""

from __future__ import annotations

import copy
import json
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.search_space import read_space, shipped_spaces
from autotune.configuration.training_config import TrainingConfig
from autotune.export.schema import Kind, schema
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Value
from autotune.values.errors import UsageError
from autotune.values.strict_yaml import dump, read
from command_line import command
from factories import best_config, written
from needs import library

ROOT = Path(__file__).parents[3]
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


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.name)
def test_every_shipped_space_fits_its_schema(path: Path) -> None:
    read_space(path)
    assert faults("space", content_of(path)) == []


def test_a_result_of_this_version_fits_its_schema(tmp_path: Path) -> None:
    config = TrainingConfig.of({"num_workers": 2, "compile_mode": "default"})
    write_best(best_config(config, TrainingConfig.of({})), tmp_path / "best.yaml")
    assert faults("best", content_of(tmp_path / "best.yaml")) == []


OWN_SPACE = """\
batch_size: [8, 16]
accumulation_steps: [1, 2, 4]
env:
  MALLOC_ARENA_MAX: {values: [null, "2"], baseline: "4", effect: exact}
  PYTORCH_ALLOC_CONF: [null, "expandable_segments:True"]
flags:
  --attn: {values: [eager, sdpa], effect: numerics}
  optimizer.lr: [0.1, 0.2]
options:
  width: {low: 16, high: 64, log2: true, effect: statistics}
  checkpoint: [false, true]
dataset_options:
  size: {low: 160, high: 224, step: 32, baseline: 192}
"""
OWN: dict[str, Value] = {
    "env.MALLOC_ARENA_MAX": "2",
    "flags.--attn": "sdpa",
    "flags.optimizer.lr": 0.1,
    "options.checkpoint": True,
    "dataset_options.size": 192,
}


def with_own_knobs() -> Any:
    """A result with knobs of the user's own, in smaller batches of the same effective batch."""
    split: dict[str, Value] = {"batch_size": 16, "accumulation_steps": 4}
    whole = TrainingConfig.of({"batch_size": 64, "env.MALLOC_ARENA_MAX": "4"})
    best = best_config(TrainingConfig.of({**OWN, **split}), whole)
    content = best.with_effects({"env.MALLOC_ARENA_MAX": "exact"}).model_dump(mode="json")
    content["constraints"]["accuracy"]["split_error"] = 1e-7
    return content


def test_a_space_with_knobs_of_the_users_own_fits_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(OWN_SPACE)
    assert set(read_space(path).own.offers) > {*OWN}
    assert faults("space", content_of(path)) == []


def test_a_result_with_knobs_of_the_users_own_fits_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "best.yaml"
    path.write_text(dump(with_own_knobs()))
    best = read_best(path)
    assert best.training_config.effective_batch == 64
    assert {*OWN} <= {*best.config}
    assert best.constraints.accuracy.split_error == 1e-7
    assert faults("best", content_of(path)) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env:\n  A: [1]\n", "is not valid under any"),
        ("env:\n  A: {values: [x], effects: exact}\n", "is not valid under any"),
        ("envs:\n  A: [x]\n", "'envs' was unexpected"),
        ("flags:\n  --a: {effect: exact}\n", "is not valid under any"),
        ("options:\n  a: [x, x]\n", "is not valid under any"),
        ("options:\n  a: {values: [1], baseline: [2]}\n", "is not valid under any"),
        ("dataset_options:\n  a: {low: 1, high: x}\n", "is not valid under any"),
        ("batchsize: [8]\n", "'batchsize' was unexpected"),
        ("batch_size: [0]\n", "is not valid under any"),
        ("batch_size: {low: 8, high: 64, step: 8, log2: true}\n", "is not valid under any"),
        ("num_threads: [1, 1]\n", "is not valid under any"),
        ("pin_memory: [1]\n", "1 is not one of [False, True]"),
        ("amp_dtype: [half]\n", "'half' is not one of"),
        ("trials: 0\n", "0 is less than the minimum of 1"),
    ],
)
def test_a_wrong_space_is_refused_by_both(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    assert any(said in fault for fault in faults("space", content_of(path)))
    with pytest.raises(UsageError):
        read_space(path)


WRONG: list[tuple[tuple[str, ...], Any]] = [
    (("autotune",), 99),
    (("config", "batchsize"), 8),
    (("config", "env.MALLOC_ARENA_MAX"), 2),
    (("config", "variables.A"), "1"),
    (("config", "accumulation_steps"), 0),
    (("effects", "flags.--attn"), "none"),
    (("evidence", "baseline", "config", "amp_dtype"), "half"),
    (("evidence", "baseline", "config", "options.checkpoint"), [True]),
    (("evidence", "speedup", "ratio"), "fast"),
    (("evidence", "speedup", "ci95"), [1.0, 1.1, 1.2]),
    (("constraints", "accuracy", "split_error"), "small"),
]


@pytest.mark.parametrize(("place", "value"), WRONG, ids=str)
def test_a_wrong_result_is_refused_by_both(
    place: tuple[str, ...], value: Any, tmp_path: Path
) -> None:
    path, sound = tmp_path / "best.yaml", with_own_knobs()
    assert faults("best", sound) == []
    wrong = copy.deepcopy(sound)
    *parents, last = place
    reduce(getitem, parents, wrong)[last] = value
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


def test_a_fastest_trial_so_far_is_checked_as_what_it_is(tmp_path: Path) -> None:
    path = written(tmp_path, "unconfirmed: true\nconfig: {}\n", "best-so-far.yaml")
    done = command("check", path)
    assert done.code == 2
    assert f"{path}:1:14: this is the fastest trial of a search that has not ended" in done.err
