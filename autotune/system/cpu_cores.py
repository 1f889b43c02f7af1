"""Cores of the CPU as the kernel lists them: NUMA nodes, physical cores, hardware threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autotune.values.machine import ROOT, read_small


@dataclass(frozen=True, order=True, slots=True)
class Core:
    """A logical core; cores sort by NUMA node, then by physical core, then by number."""

    node: int
    package: int
    core: int
    """Number of the physical core within its package."""
    number: int
    """Number of the logical core, as in an affinity mask."""

    @property
    def physical(self) -> tuple[int, int]:
        """Return the same pair for the hardware threads of one physical core."""
        return self.package, self.core


def cores_of(numbers: Iterable[int], root: Path = ROOT) -> tuple[Core, ...]:
    """Return the logical cores with these numbers, neighbours beside each other.

    Where /sys tells nothing, all are on one node and each is a physical core.
    """
    nodes = _nodes(root)
    return tuple(sorted(_core(number, nodes.get(number, 0), root) for number in numbers))


def _core(number: int, node: int, root: Path) -> Core:
    folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
    package, core = (
        read_small(folder / name).strip() for name in ("physical_package_id", "core_id")
    )
    return Core(
        node,
        int(package) if package.isdecimal() else 0,
        int(core) if core.isdecimal() else number,
        number,
    )


def _nodes(root: Path) -> dict[int, int]:
    """Return logical core to NUMA node; empty if there are no nodes."""
    found = {}
    for folder in (root / "sys/devices/system/node").glob("node*"):
        node = folder.name.removeprefix("node")
        if node.isdecimal():
            numbers = _listed(read_small(folder / "cpulist"))
            found.update(dict.fromkeys(numbers, int(node)))
    return found


def _listed(text: str) -> list[int]:
    """Return the numbers of a list such as "0-3,8"."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
