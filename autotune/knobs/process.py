"""Knobs of the training process itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from autotune.knobs.affinity import AFFINITY
from autotune.knobs.base import Integers, Knob, OneOf, Setup, Value, powers_of_two
from autotune.values.machine import Machine


class NumThreads(Knob):
    """Threads inside one operation on the CPU."""

    name = "num_threads"
    default = None
    values = Integers(1, 1024, nullable=True)
    summary = "Intra-op CPU threads of the training process; null is PyTorch's own choice."
    pays = "On CPU: fewer threads leave cores to DataLoader workers and shorten barriers."
    hurts = "Too few starve large operations; more than cores make threads wait for each other."
    call = "torch.set_num_threads(...)"
    source = "https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html"

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        cores = machine.host.usable_cores
        return tuple(sorted({*powers_of_two(1, cores), cores, machine.default_num_threads}))

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        cores = machine.host.cpu_count
        if isinstance(value, int) and value > cores:
            return f"at most {cores}: the machine has no more cores"
        return None

    def resolve(self, value: Value, machine: Machine) -> Value:
        return machine.default_num_threads if value is None else value

    def on_process(self, value: Value) -> None:
        import torch

        if isinstance(value, int):
            torch.set_num_threads(value)

    def read_process(self) -> Value:
        import torch

        return torch.get_num_threads()

    def read_back(self, setup: Setup) -> Value:
        return self.read_process()


class OmpWaitPolicy(Knob):
    """Behaviour of OpenMP threads that wait between two operations."""

    name = "omp_wait_policy"
    default = None
    values = OneOf((None, "passive", "active"))
    summary = "Let idle OpenMP threads sleep or spin; null leaves it to the OpenMP library."
    pays = "passive, where DataLoader workers need the cores that waiting threads would burn."
    hurts = "passive costs a wake-up for every operation, which small models have thousands of."
    call = "OMP_WAIT_POLICY=... in the environment, before Python starts"
    source = "https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fWAIT_005fPOLICY.html"

    def resolve(self, value: Value, machine: Machine) -> Value:
        known = os.environ.get(_WAIT_POLICY, "").strip().lower()
        return known if value is None and known in ("passive", "active") else value

    def environ(self, value: Value) -> Mapping[str, str]:
        return {_WAIT_POLICY: str(value).upper()} if value else {}

    def read_back(self, setup: Setup) -> Value:
        return at_start(_WAIT_POLICY).lower() or None


_WAIT_POLICY = "OMP_WAIT_POLICY"


def at_start(name: str) -> str:
    """Return a variable's value at the start of this process, which is what libraries read."""
    try:
        variables = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:  # not Linux
        return os.environ.get(name, "")
    found = [entry for entry in variables if entry.startswith(f"{name}=".encode())]
    return found[0].decode(errors="replace").partition("=")[2] if found else ""


# num_threads comes before cpu_affinity, which limits it to the cores that it leaves.
PROCESS_KNOBS: tuple[Knob, ...] = (NumThreads(), OmpWaitPolicy(), AFFINITY)
