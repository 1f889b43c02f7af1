"""The benchmark of each knob turned alone, by a runner whose rates are known beforehand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.knobs import KNOBS
from autotune.values.outcome import Inspected, Rejected
from benchmarks.knob_results import DEEP, KnobResults
from benchmarks.knob_turns import TURNS
from benchmarks.knobs import STUDIES, Study, measure, workload
from factories import cpu_machine, measurement
from scripted_runner import FACTS, Measured, ScriptedRunner, at

GIB = 1 << 30
BLOCKS = replace(FACTS, repeated_blocks=True, has_checkpoint=True)


def chosen(*words: str):
    return [turn for turn in TURNS if turn.is_asked(words)]


def measured(folder: Path, runner: ScriptedRunner, *words: str, rounds: int = 3) -> KnobResults:
    results = KnobResults.read(folder / "knobs.json")
    measure(
        Study("digits_cnn", folder / "model.py", runner, folder), chosen(*words), rounds, results
    )
    return results


def cells(folder: Path) -> dict[str, str | None]:
    rows = json.loads((folder / "knobs.json").read_text())["rows"]
    return {row[0]: row[1] for row in rows}


def timed(runner: ScriptedRunner) -> int:
    return sum(asked.phase == "trial" for asked in runner.asked)


def by_workers(config, phase):
    return at({0: 100, 1: 80, 2: 130}[config["num_workers"]])


def test_every_knob_is_in_the_table() -> None:
    alone = {knob.name for knob in KNOBS.values() if not knob.of_ranks}
    assert {turn.knob for turn in TURNS} == alone
    labels = [turn.label for turn in TURNS]
    assert len(set(labels)) == len(labels)
    for turn in TURNS:
        assert turn.knob == "batch_size" or KNOBS[turn.knob].values.fault(turn.value) is None


def test_a_gain_is_the_ratio_of_each_round_and_a_loss_ends_after_two(tmp_path: Path) -> None:
    results = measured(tmp_path, runner := ScriptedRunner(by_workers), "num_workers")
    found = {label: worth.ratios for label, worth in results.worths["digits_cnn"].items()}
    assert found == {"num_workers=1": [0.8, 0.8], "num_workers=2": [1.3, 1.3, 1.3]}
    assert cells(tmp_path)["num_workers=2"] == "1.30 (1.30 to 1.30)"
    # Both share the processes with the study's own settings as long as both go on.
    assert timed(runner) == 3 + 3 + 2


def test_the_same_command_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    def ended(config, phase):
        if len(runner.jobs) > 4:
            raise KeyboardInterrupt
        return by_workers(config, phase)

    runner = ScriptedRunner(ended)
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, runner, "num_workers=2")
    assert cells(tmp_path)["num_workers=2"] == "1.30"
    measured(tmp_path, again := ScriptedRunner(by_workers), "num_workers=2")
    assert timed(again) == 4
    measured(tmp_path, last := ScriptedRunner(by_workers), "num_workers=2")
    assert timed(last) == 0


def test_what_another_knob_permits_is_turned_with_that_knob_on(tmp_path: Path) -> None:
    measured(tmp_path, runner := ScriptedRunner(), "persistent_workers", rounds=1)
    configs = [job.config for job in runner.jobs if job.config]
    assert {(c["num_workers"], c["persistent_workers"]) for c in configs} == {(2, True), (2, False)}


def test_freed_memory_permits_a_larger_batch(tmp_path: Path) -> None:
    def rate(config, phase):
        freed = config["activation_checkpointing"]
        batch = config["batch_size"]
        return Measured(measurement(100 + batch, GIB + (1 if freed else 4) * batch))

    found = ScriptedRunner(rate, inspected=Inspected(cpu_machine(), BLOCKS))
    results = measured(tmp_path, found, "activation_checkpointing", rounds=1)
    label = next(turn.label for turn in chosen("activation_checkpointing"))
    worth = results.worths["digits_cnn"][label]
    assert worth.batch == 4
    assert worth.ratios == [round((100 + 4 * 128) / (100 + 128), 4)]
    assert cells(tmp_path)[label].endswith(", batch_size x 4")


def test_what_cannot_be_turned_says_why_and_what_a_gpu_tells_is_not_measured(
    tmp_path: Path,
) -> None:
    words = ("pin_memory", "compile_scope", "num_threads", "optimizer_impl")
    runner = ScriptedRunner(
        lambda config, phase: Rejected("no fused") if config["optimizer_impl"] else at(100)
    )
    measured(tmp_path, runner, *words)
    found = cells(tmp_path)
    assert found["pin_memory=true"] == "not measured"
    assert found["compile_scope=blocks, with compile_mode=default"] == "-"
    assert found["optimizer_impl=fused"] == "fails"
    reasons = {r[0]: r[-1] for r in json.loads((tmp_path / "knobs.json").read_text())["rows"]}
    assert "three blocks of one class" in reasons["compile_scope=blocks, with compile_mode=default"]
    assert "no fused" in reasons["optimizer_impl=fused"]


def test_the_deep_transformer_repeats_blocks_and_can_recompute(tmp_path: Path) -> None:
    text = workload(DEEP, tmp_path).read_text()
    assert "LAYERS, HEADS, WIDTH = 8, 4, 128" in text
    assert "\ndef checkpoint(model: nn.Module) -> None:\n" in text
    compile(text, "model.py", "exec")
    assert workload("digits_cnn", tmp_path) == STUDIES / "digits_cnn" / "model.py"
