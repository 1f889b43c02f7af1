"""Tables of knobs, shipped search spaces, machine facts and profiles, printed to stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.configuration.search_space import read_space, shipped_spaces
from autotune.console.event_lines import bound_lines
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Knob, OneOf, Value, spelled
from autotune.knobs.own import own_knobs
from autotune.process.common.interpreter import Interpreter, how_to_get
from autotune.searching.run.coverage import ENOUGH
from autotune.searching.run.diagnosis import Diagnosis
from autotune.values.machine import Machine
from autotune.values.outcome import Profiled, WorkloadFacts
from autotune.values.text import clean, size


def show_knobs(machine: Machine, facts: WorkloadFacts | None) -> None:
    """Print each knob with its values here, or the reason why it is frozen."""
    table = _table("knob", "default", "values on this machine", "what it is")
    for knob in ALL_KNOBS:
        values = _domain(knob, machine, facts)
        table.add_row(knob.name, spelled(knob.default), _cell(values), _cell(knob.summary))
    for space, path in shipped_spaces().items():
        offers = read_space(path).own.offers
        for knob in own_knobs(offers):
            values = _domain(knob, machine, facts, offers[knob.name])
            about = f"Variable of the environment that --space {space} varies."
            table.add_row(knob.name, spelled(knob.default), _cell(values), _cell(about))
    _print(table)


def show_spaces() -> None:
    """Print the shipped search spaces."""
    table = _table("space", "trials", "knobs", "about")
    for name, path in shipped_spaces().items():
        space = read_space(path)
        table.add_row(name, str(space.trials), _cell(", ".join(space.offers)), _cell(space.about))
    _print(table)


def show_machine(machine: Machine, python: Interpreter) -> None:
    """Print the facts on this machine, and what the Python that trains lacks to tell more."""
    host = machine.host
    quota = "none" if host.quota_cores is None else f"{host.quota_cores:g} cores"
    limit = "none" if host.memory_limit_bytes is None else size(host.memory_limit_bytes)
    native = ", ".join(machine.native_dtypes) or "none: autocast would be emulated and slow"
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
    if machine.device.startswith("cuda") and "pynvml" not in python.packages:
        facts["throttling, energy, other users of the GPU"] = f"need {how_to_get('pynvml', python)}"
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, fact in facts.items():
        table.add_row(name, _cell(fact))
    _print(table)


def show_profile(diagnosis: Diagnosis | None, notes: Sequence[str], profiled: Profiled) -> None:
    """Print the rate of each stage alone, the stage that bounds training, and the operators.

    `diagnosis` is None if the stages are not known; the notes say why.
    """
    lines = list(notes)
    if diagnosis is not None:
        stages = _table("stage alone", diagnosis.rate_unit, "seconds a batch")
        for name, rate in diagnosis.limits().items():
            stages.add_row(name, f"{rate:.1f}", f"{diagnosis.stages.samples / rate:.5f}")
        _print(stages)
        bound, reached, share = diagnosis.bound, diagnosis.reached, diagnosis.reached_share
        lines = [f"Your settings wait for {bound}."]
        if reached is not None and share is not None:
            lines.append(
                f"Training reaches {reached:.1f}/s, {100 * share:.0f} % of that stage alone."
            )
            if share >= ENOUGH:
                lines.append(f"Only faster {bound} can still gain speed.")
        lines += [*bound_lines(diagnosis), *notes]
        if diagnosis.doubt:
            lines = [f"Run it again: {diagnosis.doubt}."]
    operators = _table("operator", "share", "seconds a step", "calls")
    for one in profiled.operators:
        percent = f"{100 * one.share:.1f} %"
        operators.add_row(_cell(one.name), percent, f"{one.seconds:.6f}", str(one.calls))
    sys.stdout.write(clean("\n" + "\n".join(lines) + "\n\n"))
    _print(operators)


def _domain(
    knob: Knob,
    machine: Machine,
    facts: WorkloadFacts | None,
    offered: Sequence[Value] = (),
) -> str:
    """Return the values to be had here, of those `offered` if any, and why others are not."""
    irrelevant = knob.irrelevance(facts) if facts else None
    if irrelevant:
        return f"frozen: {irrelevant}"
    options = offered or (knob.values.options if isinstance(knob.values, OneOf) else ())
    refused = {v: why for v in options if (why := knob.obstacle(v, machine))}
    possible = [value for value in offered if value not in refused]
    allowed = possible if offered else knob.suggestions(machine)
    text = ", ".join(map(spelled, allowed))
    if knob.needs:
        text += f"  ({'without' if knob.has_effect(None) else 'with'} {knob.needs})"
    if len(allowed) <= 1 and refused:
        text = "frozen"
        if len(set(refused.values())) == 1:
            return f"{text}: {next(iter(refused.values()))}"
    return "\n".join([text, *(f"not {spelled(v)}: {reason}" for v, reason in refused.items())])


def _cell(text: str) -> Text:
    """Return a cell with foreign text: no markup, no control characters."""
    return Text(clean(text))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _print(table: Table) -> None:
    # A pipe has no width: keep piped lines unbroken.
    width = None if sys.stdout.isatty() else 200
    Console(file=sys.stdout, width=width, highlight=False).print(table)
