"""What is asked of accelerators that are not CUDA's, and what cannot be limited there."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from autotune.searching.run.events import Warned
from autotune.training import memory
from autotune.training.inspection import computed_formats
from autotune.values.outcome import Inspected
from factories import GIB, cuda_machine
from scripted_runner import FACTS, ScriptedRunner, events_of, unstored_in


def test_formats_are_those_that_the_device_computes_in():
    assert computed_formats("cpu") == ("bfloat16", "float16")


@pytest.mark.parametrize(
    ("supported", "formats"), [(False, ("float16",)), (True, ("bfloat16", "float16"))]
)
def test_a_format_that_is_emulated_is_none_of_them(supported, formats, monkeypatch):
    module = SimpleNamespace(is_bf16_supported=lambda including_emulation: supported)
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    assert computed_formats("cpu") == formats


def test_a_format_that_is_refused_is_none_of_them(monkeypatch):
    """As bfloat16 is on MPS before macOS 14."""
    ones = torch.ones

    def refuse(*size, dtype, device):
        if dtype == torch.bfloat16:
            raise TypeError("BFloat16 is not supported on MPS")
        return ones(*size, dtype=dtype, device=device)

    monkeypatch.setattr(torch, "ones", refuse)
    assert computed_formats("cpu") == ("float16",)


@pytest.mark.parametrize(("kind", "told"), [("cuda", [0.25]), ("xpu", [0.25]), ("hpu", [])])
def test_the_allocator_is_limited_where_that_is_possible(kind, told, monkeypatch):
    fractions = []
    module = SimpleNamespace(
        get_device_properties=lambda _: SimpleNamespace(total_memory=4 * GIB),
        set_per_process_memory_fraction=lambda fraction, *_: fractions.append(fraction),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    memory.limit_device_memory(torch.device(kind, 0), GIB)
    assert fractions == told


@pytest.mark.parametrize(
    ("device", "warns"), [("hpu:0", True), ("xpu:0", False), ("cuda:0", False)]
)
def test_a_search_says_where_memory_cannot_be_limited(device, warns, tmp_path):
    inspected = Inspected(replace(cuda_machine(), device=device), FACTS)
    events = events_of(unstored_in(tmp_path, trials=2), ScriptedRunner(inspected=inspected))
    said = [event.warning for event in events if isinstance(event, Warned)]
    assert bool(said) is warns
    assert not warns or "cannot limit the memory" in said[0]
