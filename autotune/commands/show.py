"""Commands `settings`, `spaces` and `doctor`: show the settings, the spaces and this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from autotune.commands import common, execute
from autotune.configuration.search_space import read_space, shipped_spaces
from autotune.console.progress import print_rows, signs_of_life
from autotune.context.inspection import inspect, inspection
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Knob, OneOf, Value, spelled
from autotune.knobs.own import own_knobs
from autotune.process.common.interpreter import SEARCHES, check_torch, how_to_get, is_installed
from autotune.values.machine import Machine
from autotune.values.outcome import Inspected, WorkloadFacts
from autotune.values.text import json_text, size


@click.command(
    params=[
        click.Argument(["model"], type=common.PATH, required=False),
        common.DEVICE,
        common.JSON,
    ]
)
def settings(model: Path | None, device: str, as_json: bool) -> None:
    """List the settings and their values on this machine; with MODEL, also what it cannot use."""
    if model is not None:
        common.check_model(model)
    inspected = _inspected(device, model)
    _show("settings", _knob_rows(inspected.machine, inspected.workload), as_json)


@click.command(params=[common.JSON])
def spaces(as_json: bool) -> None:
    """List the shipped search spaces."""
    _show("spaces", _space_rows(), as_json)
    if not as_json:
        click.echo("\nTo leave a setting out of a search, add --without SETTING.")


@click.command(params=[common.DEVICE, common.JSON])
def doctor(device: str, as_json: bool) -> None:
    """Show what autotune finds on this machine: device, cores, memory, PyTorch."""
    machine = _inspected(device, None).machine
    if as_json:
        click.echo(json_text({"machine": asdict(machine)}))
    else:
        show_machine(machine)


def _show(name: str, rows: Sequence[dict[str, Value]], as_json: bool) -> None:
    """Print rows as a table, or as JSON: a list of objects below `name`."""
    if as_json:
        click.echo(json_text({name: rows}))
    else:
        cells = [
            [cell if isinstance(cell, str) else spelled(cell) for cell in row.values()]
            for row in rows
        ]
        print_rows(cells, list(rows[0]))


def _inspected(device: str, model: Path | None) -> Inspected:
    """Return facts on this machine and, with a model, on the workload."""
    check_torch(SEARCHES)
    with (
        execute.scratch_folder() as folder,
        signs_of_life("" if model else "inspecting the machine"),
    ):
        runner = execute.one_runner(folder, warm=False)
        return inspect(runner, inspection(device, model), folder)


def _knob_rows(machine: Machine, facts: WorkloadFacts | None) -> list[dict[str, Value]]:
    """Return each setting with its values here, or why it is fixed, by the names of columns."""
    rows = [
        (knob.name, knob.default, _domain(knob, machine, facts), knob.summary) for knob in ALL_KNOBS
    ]
    for space, path in shipped_spaces().items():
        offers = read_space(path).own.offers
        for knob in own_knobs(offers):
            values = _domain(knob, machine, facts, offers[knob.name])
            about = f"Environment variable that --space {space} varies."
            rows.append((knob.name, knob.default, values, about))
    columns = ("setting", "default", "values on this machine", "meaning")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _space_rows() -> list[dict[str, Value]]:
    """Return the shipped search spaces by the names of columns."""
    spaces = {name: read_space(path) for name, path in shipped_spaces().items()}
    return [
        {"space": name, "trials": s.trials, "settings": ", ".join(s.offers), "about": s.about}
        for name, s in spaces.items()
    ]


def show_machine(machine: Machine) -> None:
    """Print the facts on this machine, and the package that would show more of them."""
    host = machine.host
    quota = "none" if host.quota_cores is None else f"{host.quota_cores:g} cores"
    limit = "none" if host.memory_limit_bytes is None else size(host.memory_limit_bytes)
    native = ", ".join(machine.native_dtypes) or "none: autocast would be emulated, and slow"
    facts = {
        "device": f"{machine.device} ({machine.device_name})",
        "device memory": size(machine.memory_bytes),
        "CPU": host.cpu_name,
        "cores": f"{host.cpu_count} in the machine, {host.affinity_count} by affinity",
        "CPU quota (cgroup)": quota,
        "cores to use": str(host.usable_cores),
        "memory": size(host.memory_bytes),
        "memory limit (cgroup)": limit,
        "shared memory": "no /dev/shm" if not host.shm_bytes else size(host.shm_bytes),
        "C++ compiler": host.compiler or "none",
        "torch.compile": machine.compile_obstacle or "works",
        "native AMP dtypes": native,
        "float32_matmul_precision": ", ".join(machine.matmul_precisions),
        "CUDA graphs": "yes" if machine.cuda_graphs else "no",
        "threads by default": str(machine.default_num_threads),
        "Python, torch": f"{machine.python}, {machine.torch}",
        "fingerprint": machine.fingerprint,
    }
    if machine.device.startswith("cuda") and not is_installed("pynvml"):
        facts["throttling, energy, other GPU processes"] = f"not read: needs {how_to_get('pynvml')}"
    print_rows(facts.items())


def _domain(
    knob: Knob,
    machine: Machine,
    facts: WorkloadFacts | None,
    offered: Sequence[Value] = (),
) -> str:
    """Return the values to be had here, of those `offered` if any, and why others are not."""
    irrelevant = knob.irrelevance(facts) if facts else None
    if irrelevant:
        return f"not varied: {irrelevant}"
    options = offered or (knob.values.options if isinstance(knob.values, OneOf) else ())
    refused = {v: why for v in options if (why := knob.obstacle(v, machine))}
    possible = [value for value in offered if value not in refused]
    allowed = possible if offered else knob.suggestions(machine)
    text = ", ".join(map(spelled, allowed))
    if knob.needs:
        text += f"  (with {knob.needs})"
    if len(allowed) <= 1 and refused:
        text = "not varied"
        if len(set(refused.values())) == 1:
            return f"{text}: {next(iter(refused.values()))}"
    return "\n".join([text, *(f"not {spelled(v)}: {reason}" for v, reason in refused.items())])
