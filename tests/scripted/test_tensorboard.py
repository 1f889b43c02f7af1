"""The trials of a study for TensorBoard, read back by the package itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from answered_study import answered
from command_line import command
from needs import library
from reporting import trial
from stored_study import stored
from study_factories import CRASHED

MISSING = "--tensorboard needs the package tensorboard: "


@pytest.fixture
def written(url: str, tmp_path: Path) -> Path:
    """A folder with a study of four trials, of which the last one crashed."""
    library("tensorboard")
    faster = trial(2, 150.0, num_workers=2)
    counted = replace(faster, details=replace(faster.details, quality=0.9, joules_per_sample=0.25))
    source = answered(url, counted, trial(3, None, CRASHED, "died", batch_size=8))
    done = command("report", source, "--tensorboard", tmp_path / "events")
    assert done.code == 0, done.err
    assert done.out == ""
    assert f"tensorboard --logdir {tmp_path / 'events'}" in done.err
    return tmp_path / "events"


def events_in(folder: Path) -> Any:
    """What the package's own reader finds in one run."""
    reading = library("tensorboard.backend.event_processing.event_accumulator")
    found = reading.EventAccumulator(str(folder))
    return found.Reload()


def settings_of(folder: Path) -> dict[str, object]:
    """The hparams of one run, as the package's plugin reads them."""
    plugin = library("tensorboard.plugins.hparams.plugin_data_pb2")
    content = events_in(folder).PluginTagToContent("hparams")["_hparams_/session_start_info"]
    started = plugin.HParamsPluginData.FromString(content).session_start_info
    kinds = {"bool_value", "number_value", "string_value"}
    return {
        name: getattr(value, next(k for k in kinds if value.HasField(k)))
        for name, value in started.hparams.items()
    }


def test_each_trial_is_a_run_with_the_settings_that_differ(written: Path) -> None:
    runs = sorted(path.name for path in written.iterdir() if path.is_dir())
    assert runs == ["trial-0000", "trial-0001", "trial-0002", "trial-0003"]
    own = settings_of(written / "trial-0000")
    assert (own["batch_size"], own["num_workers"], own["amp_dtype"]) == (16, 0, "null")
    assert settings_of(written / "trial-0001")["amp_dtype"] == "bfloat16"
    assert settings_of(written / "trial-0003")["batch_size"] == 8
    assert "num_threads" not in settings_of(written / "trial-0000"), "the same in all"


@pytest.mark.parametrize("name", ["env.MALLOC_ARENA_MAX", "ddp_bucket_mb"])
@pytest.mark.parametrize("values", [(None, 4), (4, None)])
def test_knobs_that_only_some_trials_have_are_columns(
    url: str, tmp_path: Path, name: str, values: tuple[int | None, ...]
) -> None:
    library("tensorboard")
    first, second = (None if value is None else str(value) for value in values)
    if name == "ddp_bucket_mb":
        first, second = values
    told = stored(url, [trial(0, **{name: first}), trial(1, 150.0, **{name: second})])
    assert command("report", told, "--tensorboard", tmp_path / "events").code == 0
    shown = [settings_of(tmp_path / "events" / f"trial-000{number}")[name] for number in (0, 1)]
    assert shown == ["null" if value is None else str(value) for value in values]


def test_its_numbers_and_its_blocks_are_scalars(written: Path) -> None:
    found = events_in(written / "trial-0002")
    (rate,) = found.Scalars("samples_per_second")
    assert (rate.step, rate.value) == (0, 150.0)
    assert found.Scalars("ratio_to_baseline")[0].value == pytest.approx(1.5)
    assert found.Scalars("quality")[0].value == pytest.approx(0.9)
    assert found.Scalars("joules_per_sample")[0].value == 0.25
    blocks = found.Scalars("samples_per_second_of_blocks")
    assert [one.step for one in blocks] == list(range(6))
    assert {one.value for one in blocks} == {150.0}


def test_what_was_not_measured_is_not_written(written: Path) -> None:
    crashed = events_in(written / "trial-0003").Tags()["scalars"]
    assert set(crashed) == {"memory_margin", "accuracy_margin", "ran_margin"}
    assert "quality" not in events_in(written / "trial-0000").Tags()["scalars"]


def test_the_search_is_a_run_of_its_own(written: Path) -> None:
    found = events_in(written)
    told = {one.step: one.value for one in found.Scalars("ratio_to_baseline")}
    assert told == pytest.approx({0: 1.0, 1: 1.6, 2: 1.5})
    plugin = library("tensorboard.plugins.hparams.plugin_data_pb2")
    content = found.PluginTagToContent("hparams")["_hparams_/experiment"]
    experiment = plugin.HParamsPluginData.FromString(content).experiment
    assert {one.name for one in experiment.hparam_infos} == set(settings_of(written / "trial-0000"))
    assert "ratio_to_baseline" in {one.name.tag for one in experiment.metric_infos}


def test_an_earlier_report_is_replaced_by_force_alone(
    url: str, written: Path, tmp_path: Path
) -> None:
    mine = written / "events.out.tfevents.1.mine"
    mine.write_bytes(b"")
    again = command("report", url, "--tensorboard", written)
    assert again.code == 2
    assert "holds an earlier report" in again.err
    assert command("report", url, "--tensorboard", written, "--force").code == 0
    assert len(list((written / "trial-0002").iterdir())) == 1
    assert mine.exists()


def test_without_the_package_the_error_says_how_to_get_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    done = command("report", stored(url, [trial(0)]), "--tensorboard", tmp_path / "events")
    assert (done.code, done.out) == (2, "")
    assert MISSING in done.err
    assert not (tmp_path / "events").exists()


@pytest.mark.parametrize(("place", "says"), [("a.txt", "is a file"), ("no/where", "no directory")])
def test_a_place_that_cannot_hold_events_is_refused(
    url: str, tmp_path: Path, place: str, says: str
) -> None:
    (tmp_path / "a.txt").touch()
    done = command("report", stored(url, [trial(0)]), "--tensorboard", tmp_path / place)
    assert done.code == 2
    assert says in done.err
