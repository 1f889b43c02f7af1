"""Watch what the loop of a training does besides computing, and in which line of the user's code.

A thread samples the stack of the training's thread, so nothing of the user's is patched. What runs
above the innermost line of the user's code shows what that line does: the file of a library, or the
source of a call that has no frame, such as `.item()`.
"""

from __future__ import annotations

import gc
import linecache
import re
import sys
import threading
import time
import timeit
from collections import Counter, defaultdict
from contextlib import suppress
from functools import cache
from itertools import islice, takewhile
from pathlib import Path
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from autotune.knobs.torch_private import compiled_graphs, watching_operators
from autotune.process.common.imports import is_ours, is_users
from autotune.training import memory
from autotune.training.batches import Batches, tensors_in
from autotune.training.ranks import World
from autotune.training.timing import CompileClock, StepRequests
from autotune.values.measurement import step_times
from autotune.values.outcome import Doing, Profiled

_SAMPLE_SECONDS = 0.003
# Steps to watch at least, unless they take so many times as long as planned.
_FEWEST_STEPS, _OVERDUE = 8, 2.5
# Steps whose operators are counted, and operators on one number that are timed.
_COUNTED_STEPS, _TIMED_OPERATORS = 3, 200
# Batches that are searched for padding. A sequence has so many positions at least, and so small a
# share of its own numbers may equal the one that pads it.
_MOST_BATCHES, _SHORTEST, _STRAY = 64, 8, 0.02
_DIMENSIONS = 2

_LOADER = "/torch/utils/data/"
# Libraries that write; calls that write, or read from tensors, without a frame of their own.
_WRITERS = re.compile(
    r"/torch/(?:serialization\.py|_tensor_str\.py|distributed/checkpoint/)|/(?:logging|json|safetensors"
    r"|matplotlib|tensorboard|tensorboardX|wandb|mlflow)/"
)
_CALLS: dict[Doing, re.Pattern[str]] = {
    "writing": re.compile(
        r"(?:[\w.]*\b(?:print|write\w*|flush|fsync|dumps?|save\w*)\(|open\([^()]*[\"'][wax])"
    ),
    "reading": re.compile(r".*\.(?:item|tolist|cpu|numpy|synchronize)\(\)$|(?:float|int|bool)\("),
}
Lines = defaultdict[str, float]
"""Seconds by the line of the user's code."""
# Files of torch between an operator that reads from a tensor and the code that wants it.
_BETWEEN = ("_tensor.py", "_tensor_str.py", "_compile.py", "_dynamo/eval_frame.py")


class Watch:
    """A watch over the steps of one training."""

    def __init__(self, batches: Batches, device: torch.device, world: World) -> None:
        """Count compilations and the allocator's retries from now on."""
        self._batches, self._device, self._world = batches, device, world
        self._compiler, self._begun = CompileClock(), time.perf_counter()
        self._retries = memory.allocator_retries(device)
        self._sampler = Sampler(threading.get_ident())
        self._seconds = self._waited = 0.0
        self._steps: list[float] = []
        self._longest = 0.0, Lines(float)
        self._held: list[tuple[int, int]] = []
        self._reads: Counter[str] = Counter()
        self._operators = 0
        self._padded: list[tuple[int, int]] = []

    def watching(self, seconds: float) -> StepRequests[Profiled]:
        """Ask for steps for so many seconds, then for some whose operators are counted.

        Those of code that is compiled are not: watching them would compile it again.
        """
        self._held.append(self._holding())
        start, waited = time.perf_counter(), self._batches.wait_seconds
        self._sampler.start()
        least = seconds
        while self._world.told(self._seconds < least):
            yield from self._step()
            least = seconds if len(self._steps) >= _FEWEST_STEPS else _OVERDUE * seconds
            self._seconds = time.perf_counter() - start
            self._waited = self._batches.wait_seconds - waited
            if 2 * self._seconds >= len(self._held) * seconds:
                self._held.append(self._holding())
        self._sampler.over.set()
        self._sampler.join()
        if not compiled_graphs():
            with watching_operators(self._ran):
                yield _COUNTED_STEPS
        return self.found()

    def _step(self) -> StepRequests[None]:
        """Ask for a step, without waiting for the device; note the seconds in which it computes."""
        self._sampler.computing = Lines(float)
        start, cpu = self._computing(), time.process_time()
        yield 1
        own = self._computing() - start
        if self._device.type == "cpu":  # it may wait for other programs to leave a core
            own = min(own, time.process_time() - cpu)
        self._steps.append(max(0.0, own))
        self._longest = max(self._longest, (own, self._sampler.computing), key=lambda step: step[0])

    def _computing(self) -> float:
        """Return the clock less all that is no computing."""
        batches = self._batches
        apart = batches.wait_seconds + sum(batches.boundary_seconds) + self._sampler.apart_seconds
        return batches.clock() - apart

    def _holding(self) -> tuple[int, int]:
        """Return how many tensors hold the graph that made them, and the bytes in use."""
        peak = memory.PeakWatch(self._device)
        peak.look()
        graphs = sum(type(one) is Tensor and one.grad_fn is not None for one in gc.get_objects())
        return graphs, peak.in_use or 0

    def look(self, batch: Any) -> Any:
        """Note the padding of a batch, and return it."""
        if len(self._padded) < _MOST_BATCHES and not self._operators:
            with suppress(Exception):  # which must not harm the training
                self._padded += filter(None, [padding_in(batch)])
        return batch

    def _ran(self, name: str, arguments: Any) -> None:
        """Note an operator, and the line if it reads a number from a tensor on the device.

        Torch does so by itself, too, as some optimizers do.
        """
        self._operators += 1
        if not name.startswith("aten._local_scalar_dense"):
            return
        stack = walk_stack(sys._getframe(1).f_back)
        reader = next(one for one, _ in stack if not one.f_code.co_filename.endswith(_BETWEEN))
        on_device = arguments[0].device.type == self._device.type
        if on_device and not _is_of_library(reader.f_code.co_filename):
            self._reads[place_of(reader)] += 1

    def found(self) -> Profiled:
        """Return what was seen so far."""
        padded, positions = map(sum, zip((0, 0), *self._padded, strict=True))
        kept = (self._held[-1][0] - self._held[0][0]) / len(self._steps) if self._steps else 0.0
        longest = dict(self._longest[1])
        return Profiled(
            seconds=self._seconds,
            steps=len(self._steps),
            own=step_times([(seconds, 0.0) for seconds in self._steps]),
            slow_line=max(longest, key=longest.__getitem__, default=""),
            wait_seconds=self._waited,
            spent={doing: dict(lines) for doing, lines in list(self._sampler.spent.items())},
            reads={place: count / _COUNTED_STEPS for place, count in self._reads.items()},
            operators=self._operators / _COUNTED_STEPS,
            operator_seconds=_operator_seconds() if self._operators else 0.0,
            compilations=self._compiler.events // 2,
            compile_share=self._compiler.seconds / (time.perf_counter() - self._begun),
            allocator_retries=memory.allocator_retries(self._device) - self._retries,
            padding=padded / max(1, positions),
            memory=tuple(used for _, used in self._held),
            kept_graphs=kept,
        )


class Sampler(threading.Thread):
    """A thread that samples what another thread does, until its event `over` is set."""

    def __init__(self, watched: int) -> None:
        super().__init__(daemon=True)
        self._watched, self.over = watched, threading.Event()
        self.spent: defaultdict[Doing, Lines] = defaultdict(lambda: Lines(float))
        self.computing = Lines(float)
        """All else since this was last replaced."""
        self.apart_seconds = 0.0
        """Seconds in which the user's code wrote something or read from tensors."""

    def run(self) -> None:
        """Sample every few milliseconds."""
        last = time.perf_counter()
        while not self.over.wait(_SAMPLE_SECONDS):
            frame = sys._current_frames()[self._watched]
            # A call that keeps Python's lock delays its sample, which stands for all of it.
            now = time.perf_counter()
            doing = _activity(frame)
            lines = self.computing if doing is None else self.spent[doing]
            lines[place_of(frame)] += now - last
            self.apart_seconds += 0.0 if doing in (None, "loading") else now - last
            last = now


def _activity(frame: FrameType) -> Doing | None:
    """Return what a thread does besides computing, if anything."""
    files = [one.f_code.co_filename for one, _ in walk_stack(frame)]
    if any(_LOADER in file for file in files):  # whatever a dataset does for it
        return "loading"
    above = takewhile(lambda file: not is_users(file), files)
    writes = any(map(_WRITERS.search, above))
    return _call(frame.f_code, frame.f_lasti) or ("writing" if writes else None)


def place_of(frame: FrameType) -> str:
    """Return the innermost line of the user's code, such as train.py:120; empty without one."""
    lines = ((one.f_code.co_filename, line) for one, line in walk_stack(frame))
    return next((f"{Path(file).name}:{line}" for file, line in lines if is_users(file)), "")


def _is_of_library(file: str) -> bool:
    """Return True for code of torch, such as an optimizer's, and of autotune."""
    return is_ours(file) or ("/torch/" in file and not file.endswith(_BETWEEN))


@cache
def _call(code: CodeType, instruction: int) -> Doing | None:
    """Return the kind of the call that an instruction makes, by its source."""
    if _is_of_library(code.co_filename):
        return None
    line, end_line, column, end = next(islice(code.co_positions(), instruction // 2, None))
    text = linecache.getline(code.co_filename, line or 0).encode()
    source = text[column : end if end_line == line else None].decode(errors="replace").strip()
    return next((kind for kind, calls in _CALLS.items() if calls.match(source)), None)


def _operator_seconds() -> float:
    """Return the seconds of an operator on one number of a CPU, as a part of a graph."""
    number = torch.ones(1, device="cpu", requires_grad=True)
    with torch.enable_grad():
        times = timeit.repeat(lambda: number * 2.0, number=_TIMED_OPERATORS, repeat=3)
    return min(times) / _TIMED_OPERATORS


def padding_in(batch: Any) -> tuple[int, int] | None:
    """Return the padded and all positions of a batch of sequences.

    A sequence is a row of whole numbers, such as token IDs or a mask. What pads it is a number at
    one end of the shorter rows that hardly occurs elsewhere. None if there are no sequences.
    """
    for rows in tensors_in(batch):
        is_whole = not (rows.is_floating_point() or rows.is_complex())
        if is_whole and rows.dim() == _DIMENSIONS and rows.size(1) >= _SHORTEST:
            return max(_at_end(rows), _at_end(rows.flip(1))), rows.numel()
    return None


def _at_end(rows: Tensor) -> int:
    """Return how many positions one number fills at the ends of rows, and hardly elsewhere."""
    last, counts = torch.unique(rows[:, -1], return_counts=True)
    for value in last[counts.argsort(descending=True)][:2]:
        fills = rows == value
        ends = fills.flip(1).int().cumprod(1).sum(1)
        padded, others = int(ends.sum()), int(fills.sum()) - int(ends.sum())
        is_stray = others <= _STRAY * (rows.numel() - padded)
        # A number that ends every row is no padding, nor does it fill one.
        if is_stray and padded > len(rows) and int(ends.max()) < rows.size(1):
            return padded
    return 0
