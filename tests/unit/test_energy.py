"""Energy of a sample: read from NVML or RAPL, told where it is known, claimed nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from autotune.configuration.best_config import read_best
from autotune.configuration.training_config import TrainingConfig
from autotune.production import Best
from autotune.report.data import read_report
from autotune.report.explain import explanation
from autotune.report.html import page
from autotune.report.tables import json_text
from autotune.study.archive import find_study
from autotune.training import disturbance
from autotune.training.disturbance import EnergyMeter, gpu_energy, package_energy
from autotune.values.measurement import Measurement, Noise
from autotune.values.outcome import Inspected, Measured, TrialOutcome
from children import WORKLOADS, job_for, run_child
from factories import cuda_machine, measurement
from factories import written as file_with
from reporting import Page
from scripted_runner import FACTS, ScriptedRunner, batch_of, events_of, options_in
from shown_events import lines_of

RANGE = 262_143_328_850


@pytest.fixture
def powercap(tmp_path: Path) -> Callable[..., Path]:
    """Write the folders of the kernel: names of zones, each with its microjoules."""

    def write(**zones: int) -> Path:
        for name, microjoules in zones.items():
            number, _, named = name.partition("_")
            zone = tmp_path / f"intel-rapl:{number[1:].replace('z', ':')}"
            zone.mkdir(exist_ok=True)
            (zone / "name").write_text(named.replace("_", "-") + "\n")
            (zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
            (zone / "energy_uj").write_text(f"{microjoules}\n")
        return tmp_path

    return write


def spending(joules: float | None, rate: float = 100.0) -> Measurement:
    """A measurement each of whose blocks took so much energy."""
    run = measurement(rate)
    return replace(run, blocks=tuple(replace(b, noise=Noise(joules=joules)) for b in run.blocks))


def less_for_large(config: TrainingConfig, phase: str) -> TrialOutcome:
    """Larger batches are faster and take less energy: at a batch of 8, 64 J a block of 32."""
    batch = batch_of(config)
    return Measured(spending(512 / batch, batch))


def test_packages_are_summed_and_their_parts_and_the_platform_are_left_out(powercap) -> None:
    zones = {"z0_package_0": 5_000_000, "z1_package_1": 7_000_000}
    root = powercap(**zones, z0z0_core=1_000_000, z2_psys=90_000_000)
    meter = EnergyMeter(lambda: package_energy(root))
    powercap(z0_package_0=6_500_000, z1_package_1=7_250_000, z0z0_core=2_000_000)
    assert meter() == 1.75
    assert meter() == 0.0


def test_a_counter_that_began_again_is_no_loss_of_energy(powercap) -> None:
    root = powercap(z0_package_0=RANGE - 1_000_000)
    meter = EnergyMeter(lambda: package_energy(root))
    powercap(z0_package_0=2_000_000)
    assert meter() == 3.0


def test_counters_that_are_not_there_or_not_readable_tell_nothing(
    powercap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert EnergyMeter(lambda: package_energy(tmp_path / "none"))() is None
    root = powercap(z0_package_0=1)

    def refuse(path: Path) -> str:
        if path.name == "energy_uj":  # as kernels do to all but root
            raise PermissionError
        return "package-0"

    monkeypatch.setattr(disturbance, "_text", refuse)
    assert EnergyMeter(lambda: package_energy(root))() is None


class NVMLError(Exception):
    """The error that the library raises."""


def test_a_gpu_counts_millijoules() -> None:
    told = iter([1_000, 13_500])
    nvml = SimpleNamespace(
        NVMLError=NVMLError, nvmlDeviceGetTotalEnergyConsumption=lambda _: next(told)
    )
    meter = EnergyMeter(lambda: gpu_energy(nvml, "handle"))
    assert meter() == 12.5


def test_a_gpu_that_tells_no_energy_has_none() -> None:
    def refuse(_: object) -> int:
        raise NVMLError

    nvml = SimpleNamespace(NVMLError=NVMLError, nvmlDeviceGetTotalEnergyConsumption=refuse)
    assert EnergyMeter(lambda: gpu_energy(nvml, "handle"))() is None


def test_a_driver_that_was_loaded_anew_tells_nothing_of_that_block() -> None:
    told = iter([((5_000_000, 0),), ((1_000, 0),), ((3_000, 0),)])
    meter = EnergyMeter(lambda: next(told))
    assert meter() is None
    assert meter() == 0.002


def test_the_watch_over_a_block_reads_the_energy_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = iter([((0, RANGE),), ((8_000_000, RANGE),)])
    monkeypatch.setattr(disturbance, "package_energy", lambda: next(told))
    watch = disturbance.watch(torch.device("cpu"), lambda: 0.0)
    assert watch().joules == 8.0


@pytest.mark.parametrize(("joules", "each"), [(4.0, 0.125), (None, None), (0.0, None)])
def test_energy_of_a_sample_is_that_of_the_blocks(joules, each) -> None:
    """A counter that did not move has told nothing: no training is without energy."""
    assert spending(joules).joules_per_sample == each


def test_it_is_told_wherever_the_answer_is(tmp_path: Path) -> None:
    inspected = Inspected(cuda_machine(), FACTS)
    events = events_of(options_in(tmp_path), ScriptedRunner(less_for_large, inspected=inspected))
    assert "  energy      2 -> 0.125 J a sample, of the GPU" in lines_of(events)
    written = yaml.safe_load((tmp_path / "best.yaml").read_text())["evidence"]
    assert written["baseline"]["joules_per_sample"] == 2.0
    assert written["best"]["joules_per_sample"] == 0.125
    best = Best(read_best(tmp_path / "best.yaml"))
    assert "2 to 0.125 J a sample, of the GPU" in best.explain()
    data = read_report(find_study(str(tmp_path)))
    told = " ".join(explanation(data))
    assert "A sample takes 2 J of the GPU with your settings, 0.125 J with the answer's." in told
    trials = json.loads(json_text(data))["trials"]
    assert {one["joules_per_sample"] for one in trials} == {2.0, 1.0, 0.5, 0.25, 0.125}
    assert "0.125 Jyours 2, of the GPU" in " ".join(Page(page(data)).text.split())


def test_nothing_is_said_where_nothing_tells(tmp_path: Path) -> None:
    lines = lines_of(events_of(options_in(tmp_path), ScriptedRunner()))
    assert "energy" not in "\n".join(lines)
    assert "joules" not in (tmp_path / "best.yaml").read_text()
    assert read_best(tmp_path / "best.yaml").evidence.joules_per_sample is None
    assert "Energy" not in Page(page(read_report(find_study(str(tmp_path))))).text


COUNTS = """
import itertools
from autotune.training import disturbance

joules = itertools.count()
disturbance.package_energy = lambda: ((next(joules) * 1_000_000, 0),)
"""


def test_a_child_tells_the_energy_of_each_of_its_blocks(tmp_path: Path) -> None:
    """Its counter, which few machines let anyone read, is a joule further at each reading."""
    counting = file_with(tmp_path, (WORKLOADS / "plain.py").read_text() + COUNTS, "counts.py")
    found = run_child(tmp_path, job_for(counting))
    assert isinstance(found, Measured)
    blocks = found.measurement.blocks
    assert [block.noise.joules for block in blocks] == [1.0] * len(blocks)
    samples = sum(block.samples for block in blocks)
    assert found.measurement.joules_per_sample == pytest.approx(len(blocks) / samples)
