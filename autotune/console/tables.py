"""Tables of settings, shipped search spaces and machine facts, printed to stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from textwrap import TextWrapper

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.configuration.search_space import read_space, shipped_spaces
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Knob, OneOf, Value, spelled
from autotune.knobs.own import own_knobs
from autotune.process.common.interpreter import how_to_get, is_installed
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts
from autotune.values.text import clean, size

Row = dict[str, Value]
"""Cells of a table by the names of its columns."""
_WIDTH_OF_A_PIPE = 100_000
# As wide as the names of facts, see `autotune.configuration.answer_words.fact_lines`.
_INDENT_OF_FACTS = 14 * " "
# Facts with a command, which is copied as one line.
_UNFOLDED = ("  use it ", "  next ")


def knob_rows(machine: Machine, facts: WorkloadFacts | None) -> list[Row]:
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


def space_rows() -> list[Row]:
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
        return f"frozen: {irrelevant}"
    options = offered or (knob.values.options if isinstance(knob.values, OneOf) else ())
    refused = {v: why for v in options if (why := knob.obstacle(v, machine))}
    possible = [value for value in offered if value not in refused]
    allowed = possible if offered else knob.suggestions(machine)
    text = ", ".join(map(spelled, allowed))
    if knob.needs:
        text += f"  (with {knob.needs})"
    if len(allowed) <= 1 and refused:
        text = "frozen"
        if len(set(refused.values())) == 1:
            return f"{text}: {next(iter(refused.values()))}"
    return "\n".join([text, *(f"not {spelled(v)}: {reason}" for v, reason in refused.items())])


def print_rows(
    rows: Iterable[Sequence[str]], headers: Sequence[str] = (), numbers: int = 0
) -> None:
    """Print rows of foreign text on stdout: no markup, no control characters.

    The first `numbers` columns hold numbers, which are never folded.
    """
    table = Table(box=None, pad_edge=False, show_header=bool(headers))
    for place, header in enumerate(headers):
        if place < numbers:
            table.add_column(header, justify="right", no_wrap=True)
        else:
            table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console = Console(file=sys.stdout, highlight=False, width=width_of_stdout())
    with console.capture() as printed:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def folded(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines folded to the terminal's width; the rest of a fact stands below its text."""
    width = width_of_stdout()
    for line in lines:
        if len(line) > width and "\n" not in line and not line.startswith(_UNFOLDED):
            indent = _INDENT_OF_FACTS if line.startswith("  ") else ""
            wrapper = TextWrapper(
                width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
            )
            line = wrapper.fill(line)  # noqa: PLW2901
        yield line


def width_of_stdout() -> int:
    """Return the columns of the terminal; a pipe has so many that nothing is folded."""
    return Console(file=sys.stdout).width if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
