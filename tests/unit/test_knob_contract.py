"""The contract of a knob finds what is broken with one in the code of a model.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from autotune.contract.knob_contract import Bench, coded_faults
from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.training.coded_knobs import with_errors
from autotune.training.workload import Workload, load_workload
from children import WORKLOADS
from factories import cpu_machine
from restored import process_state


class Scale(Knob):
    """Multiplies what the model gives, which trains otherwise."""

    name = "scale"
    summary = "Factor on the output of the model."
    values = OneOf((1, 2))
    default = 1

    def on_model(self, value: Value, model: nn.Module) -> nn.Module:
        model.factor = value  # type: ignore[assignment]
        model.register_forward_hook(lambda layer, _, output: output * layer.factor)
        return model

    def read_back(self, setup: Setup) -> Value:
        return getattr(setup.model, "factor", 1)  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _process_state() -> Iterator[None]:
    with process_state():
        yield


@pytest.fixture
def workload(monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.setattr(sys, "path", [*sys.path, str(WORKLOADS)])
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    return load_workload(WORKLOADS / "plain.py")


def faults(workload: Workload, knob: Knob) -> list[str]:
    used = replace(workload, knobs=(knob,))
    return list(coded_faults(Bench.of(used, "cpu", workload.baseline), knob, cpu_machine()))


def variant(**changes: Any) -> Knob:
    return type("Scale", (Scale,), changes)()  # type: ignore[no-any-return]


def test_a_sound_knob_keeps_it(workload: Workload) -> None:
    assert faults(workload, Scale()) == []


def test_a_value_that_is_not_in_force_is_told(workload: Workload) -> None:
    knob = variant(on_model=lambda self, value, model: model)
    assert faults(workload, knob) == [
        "2 reads back as 1; put it into force in a hook, and ask the live process in read_back"
    ]


def test_a_default_that_is_not_what_is_in_force_without_the_knob_is_told(
    workload: Workload,
) -> None:
    found = faults(workload, variant(default=2))
    assert found[0] == "the default is 2, but without the knob 1 is in force"
    assert any("the default must leave training alone" in fault for fault in found)


def test_an_exact_knob_that_trains_otherwise_is_told(workload: Workload) -> None:
    (fault,) = [f for f in faults(workload, variant(effect="exact")) if "loss" in f]
    assert fault.startswith("with 2 a first step has the loss ")
    assert fault.endswith("; its effect is exact")


def test_a_value_that_stays_when_the_default_follows_is_told(workload: Workload) -> None:
    state = {"factor": 1}

    def on_process(self: Knob, value: Value) -> None:
        state["factor"] = max(state["factor"], int(value or 1))

    knob = variant(
        on_process=on_process,
        on_model=lambda self, value, model: model,
        read_back=lambda self, setup: state["factor"],
    )
    (fault,) = faults(workload, knob)
    assert fault.startswith("1, the default after 2, reads back as 2;")


def test_a_value_that_does_not_stay_when_it_is_applied_twice_is_told(workload: Workload) -> None:
    def on_model(self: Knob, value: Value, model: nn.Module) -> nn.Module:
        model.factor = 3 if hasattr(model, "factor") else value  # type: ignore[assignment]
        return model

    assert (
        "1, applied twice, reads back as 3; put it"
        in faults(workload, variant(on_model=on_model))[0]
    )


def test_a_knob_that_changes_another_setting_is_told(workload: Workload) -> None:
    def on_process(self: Knob, value: Value) -> None:
        torch.set_num_threads(2 if value == 2 else 1)

    found = faults(workload, variant(on_process=on_process, on_model=lambda self, v, m: m))
    assert "with 2 num_threads reads back as 2, not 1" in found


def test_texts_and_suggestions_are_part_of_it(workload: Workload) -> None:
    knob = variant(summary="Factor", suggestions=lambda self, machine: (1, 2, 2))
    found = faults(workload, knob)
    assert "summary must be a sentence with a full stop, not 'Factor'" in found
    assert "suggestions has a value twice: 1, 2, 2" in found


def test_a_value_of_today_is_left_out_where_the_knob_is(workload: Workload) -> None:
    used = replace(workload, knobs=(knob := Scale(),))
    bench = Bench.of(used, "cpu", {**workload.baseline, "knobs.scale": 2})
    assert list(coded_faults(bench, knob, cpu_machine())) == []


def test_an_error_of_a_hook_is_the_last_fault(workload: Workload) -> None:
    def on_model(self: Knob, value: Value, model: nn.Module) -> nn.Module:
        raise ValueError("boom")

    knob = variant(on_model=on_model, summary="Factor")
    used = replace(workload, knobs=(knob,))
    found = with_errors(coded_faults(Bench.of(used, "cpu", workload.baseline), knob, cpu_machine()))
    assert found[0] == "summary must be a sentence with a full stop, not 'Factor'"
    assert found[-1].startswith(__file__)
    assert found[-1].endswith(": ValueError: boom")
