"""Measure the cost of watching a script and of recording its loss: with and without, in turns.

    python -m benchmarks.loss_recording [--rounds N] [--epochs N]

One process trains as in `benchmarks.run_overhead`, below the hooks of an accuracy probe: those of
`autotune.scripting.trial.Trial`, whole. Blocks of epochs alternate between three ways: "off", with
torch as it was before, "watched", without the losses, and "recorded". An epoch has 64 steps of
about a millisecond. Target: at most 1 % for watching and recording together, with its interval. Run
it on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset

from autotune.configuration.job import Job, Probe
from autotune.configuration.script import Script
from autotune.knobs.torch_private import loader_iterators
from autotune.process.common.trial_folder import TrialFolder
from autotune.scripting.run import Calls
from autotune.scripting.trial import Trial
from autotune.values.outcome import TrialOutcome
from benchmarks.medians import log_median, median_interval

OFF, WATCHED, RECORDED = WAYS = ("off", "watched", "recorded")
_COMPARED = ((WATCHED, OFF), (RECORDED, WATCHED), (RECORDED, OFF))
# Every place of torch that a trial patches.
_PATCHED = (
    (torch.autograd, "backward"),
    (torch.autograd, "grad"),
    (torch.amp.GradScaler, "scale"),
    (torch.optim.Optimizer, "__init__"),
    (DataLoader, "__init__"),
    (DataLoader, "__iter__"),
    (loader_iterators(), "__next__"),
    (loader_iterators(), "_next_index"),
    (nn.Module, "compile"),
)
_HOOKS = (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
_ENDLESS = 10**15


def main() -> None:
    """Train in alternating blocks and print the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=101, help="blocks of each way")
    parser.add_argument("--epochs", type=int, default=1, help="epochs of a block, of 64 steps")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Watching(Path(folder)))
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(arguments.rounds):
        for way in _turned(WAYS, number):
            seconds[way].append(training.block(way, arguments.epochs))
    for way, each in seconds.items():
        print(f"{way}: {1e3 * median(each):.4f} ms a step")
    for way, other in _COMPARED:
        ratios = [a / b for a, b in zip(seconds[way], seconds[other], strict=True)]
        low, high = (100 * bound - 100 for bound in median_interval(ratios))
        cost = 100 * (log_median(ratios) - 1)
        print(f"{way} against {other}: {cost:+.2f} % ({low:+.2f} to {high:+.2f})")


def _turned(ways: Sequence[str], number: int) -> Sequence[str]:
    """Return the ways in one of six orders, so that none always follows the same other one."""
    start = number % 3
    order = (*ways[start:], *ways[:start])
    return order if number // 3 % 2 else order[::-1]


class Watching:
    """The hooks of an accuracy probe in this process, which can be taken off and put on again."""

    def __init__(self, folder: Path) -> None:
        before = self._state()
        script = Script(())
        job = Job(Probe(_ENDLESS, (0,), loss="mean"), "cpu", model_path="train.py", script=script)
        self._trial = Trial(job, TrialFolder(folder), _leave, Calls({}))
        self._trial.begin(time.monotonic())
        self._states = {OFF: before, RECORDED: self._state()}

    def be(self, way: str) -> None:
        """Put the hooks of a way into force; call it between two epochs."""
        if OFF not in self._states or way not in WAYS:
            raise ValueError(way)
        self._trial._reads_losses = way == RECORDED
        recorder = self._trial.losses.recorder
        stepping = self._trial.interposition.stepping
        stepping.losses[:] = [recorder.note] if way == RECORDED else []
        patches, hooks = self._states[OFF if way == OFF else RECORDED]
        for (place, name), value in zip(_PATCHED, patches, strict=True):
            setattr(place, name, value)
        for table, entries in zip(_HOOKS, hooks, strict=True):
            table.clear()
            table.update(entries)

    def settled(self) -> None:
        """Note the hooks as they are now: an optimizer is built, and the model is known."""
        self._states[RECORDED] = self._state()

    @property
    def steps(self) -> int:
        """Steps that the trial has counted."""
        return self._trial.stream.steps

    @property
    def losses(self) -> int:
        """Steps whose loss is recorded."""
        return len(self._trial.losses.recorder.steps())

    @staticmethod
    def _state() -> tuple[list[Any], list[dict[int, Any]]]:
        return [vars(p)[n] for p, n in _PATCHED], [dict(table) for table in _HOOKS]


def _leave(outcome: TrialOutcome) -> NoReturn:
    raise SystemExit(f"the trial ended: {outcome}")


class Training:
    """The loop of `benchmarks.run_overhead`."""

    def __init__(self, watching: Watching) -> None:
        torch.set_num_threads(1)
        self.watching = watching
        data = TensorDataset(torch.randn(4096, 256), torch.randn(4096, 1))
        layers = (nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.model = nn.Sequential(*layers, nn.Linear(256, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.loader = DataLoader(data, batch_size=64)
        self._train()
        watching.settled()

    def block(self, way: str, epochs: int) -> float:
        """Train for a block, and return the seconds of a step.

        Raises:
            RuntimeError: the hooks of this way did not see what they are to see.
        """
        self.watching.be(way)
        steps, losses = self.watching.steps, self.watching.losses
        start = time.perf_counter()
        for _ in range(epochs):
            self._train()
        seconds = time.perf_counter() - start
        taken = epochs * len(self.loader)
        seen = (self.watching.steps - steps, self.watching.losses - losses)
        if seen != (0 if way == OFF else taken, taken if way == RECORDED else 0):
            raise RuntimeError(f"{way}: {seen[0]} steps and {seen[1]} losses of {taken} were seen")
        return seconds / taken

    def _train(self) -> None:
        for x, y in self.loader:
            self.optimizer.zero_grad()
            (self.model(x) - y).square().mean().backward()
            self.optimizer.step()


if __name__ == "__main__":
    main()
