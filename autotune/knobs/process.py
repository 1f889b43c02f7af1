"""Knobs of the training process itself."""

from __future__ import annotations

from autotune.knobs.base import Integers, Knob, Setup, Value, powers_of_two
from autotune.machine import Machine


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
