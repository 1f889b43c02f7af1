"""Knob that copies the next batch to the device while the present one is trained on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.values.machine import Machine

if TYPE_CHECKING:
    import torch

_WITH_STREAMS = ("cuda", "xpu")


class CopiedAhead:
    """Batches on the device; the next one is copied on a stream of its own meanwhile.

    At most two batches that were copied are kept: the one given last and the next one.
    """

    alive: ClassVar[weakref.WeakSet[CopiedAhead]] = weakref.WeakSet()
    """Iterators that are in use and have copied a batch."""

    def __init__(
        self,
        batches: Iterator[Any],
        transfer: Callable[[Any], Any],
        device: torch.device,
        streams: Any = None,
    ) -> None:
        """Read nothing yet.

        Args:
            batches: batches on the host, best in pinned memory: a copy from other memory waits.
            transfer: moves a batch to the device.
            device: the device.
            streams: module with the device's streams; None for torch's.
        """
        import torch

        self.device = device
        self._batches, self._transfer = batches, transfer
        self._streams = torch.get_device_module(device) if streams is None else streams
        self._side = self._streams.Stream(device=device)
        self._given: Any = None
        self._next: tuple[Any, Any] | None = None

    def __iter__(self) -> CopiedAhead:
        return self

    def __next__(self) -> Any:
        """Return the next batch; work that is queued from now on waits for its copy.

        Raises:
            StopIteration: there is none.
        """
        current = self._streams.current_stream(self.device)
        # What was given is freed only after the stream of its memory waits for its use, as
        # Tensor.record_stream's documentation asks: record_stream itself would let memory grow
        # with the steps that the host is ahead.
        self._side.wait_stream(current)
        self._given = None
        if self not in CopiedAhead.alive:
            CopiedAhead.alive.add(self)
            self._next = self._copied()
        if self._next is None:
            raise StopIteration
        self._given, is_copied = self._next
        self._next = self._copied()
        # An event, because the copy of the batch after it is on that stream by now.
        current.wait_event(is_copied)
        return self._given

    def _copied(self) -> tuple[Any, Any] | None:
        """Begin to copy the next batch; return it with the event of its end, None without one."""
        try:
            batch = next(self._batches)
        except StopIteration:
            return None
        with self._streams.stream(self._side):
            return self._transfer(batch), self._side.record_event()


class DevicePrefetch(Knob):
    """Copies of batches on a side stream."""

    name = "device_prefetch"
    default = False
    values = OneOf((False, True))
    needs = "pin_memory"
    idle = False
    summary = "Copy the next batch to the device while the present one is trained on."
    pays = "When copying a batch takes a visible part of a step: kernels no longer wait for it."
    hurts = "Takes the memory of one more batch, and waits for each batch one step earlier."
    call = "torch.cuda.Stream() for the copies; best.batches(loader, device)"
    source = "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams"

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value and not machine.has_accelerator:
            return "there is no accelerator to copy to"
        if value and machine.device_type not in _WITH_STREAMS:
            return f"{machine.device_type} has no streams that copies could take"
        return None

    def on_batches(
        self,
        value: Value,
        batches: Iterator[Any],
        transfer: Callable[[Any], Any],
        device: torch.device,
    ) -> Iterator[Any]:
        """Return the batches of one epoch, moved to the device ahead if `value` is true."""
        return CopiedAhead(batches, transfer, device) if value else batches

    def read_back(self, setup: Setup) -> Value:
        return any(one.device == setup.device for one in CopiedAhead.alive)


DEVICE_PREFETCH = DevicePrefetch()
