"""A refusal names a time budget with which the same search ends with an answer."""

import math
from dataclasses import dataclass, replace

import pytest

from autotune.searching.run.events import Answered
from autotune.searching.search import search
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.measurement import Block
from autotune.values.outcome import Measured
from factories import measurement
from scripted_runner import agreeing, batch_of, unstored_in
from search_clock import timed_runner

STEP = 0.3
SPACE = """\
batch_size: [8, 16, 32]
num_workers: [0, 1, 2, 4]
prefetch_factor: [2, 4]
persistent_workers: [false, true]
"""
COMPILED = SPACE + "compile_mode: [null, default, max-autotune-no-cudagraphs]\n"


@dataclass
class Slow:
    """A workload of slow steps, each of whose processes takes long to start."""

    start: float = 12.0
    gain: float = 1.0
    """Speed-up of one worker or more, in trials."""
    confirmed: float | None = None
    """The same in rounds; None if it is as in trials."""
    by_batch: float = 1.0
    """Speed-up of each doubling of the batch."""
    compiling: float = 0.0
    seed_seconds: float = 4.0
    loses: float = 0.0
    """Loss of quality by a larger batch, on every other seed."""
    timings: int = 0

    def ratio(self, config, phase):
        self.timings += 1
        gain = self.gain if phase != "confirmation" or self.confirmed is None else self.confirmed
        noise = 0.01 * math.sin(37.0 * self.timings)
        larger = self.by_batch ** math.log2(batch_of(config) / 8)
        return (gain if config["num_workers"] else 1.0) * larger * math.exp(noise)

    def run_of(self, config, phase):
        step = STEP * batch_of(config) / 8 / self.ratio(config, phase)
        compiling = self.compiling if config["compile_mode"] else 0.0
        return replace(
            measurement(),
            blocks=(Block(step, batch_of(config), 0.0),) * 6,
            warmup_step_seconds=(compiling + 2 * step, step, step),
            compile_seconds=compiling,
            start_seconds=self.start,
        )

    def measure(self, config, phase):
        return Measured(self.run_of(config, phase))

    def quality(self, config, seed):
        return 0.9 - self.loses * (batch_of(config) > 8 and seed % 2)

    def runner(self, monkeypatch):
        def seconds(config, phase):
            if config is None or phase in {"inspection", "diagnosis", "gate", "arithmetic"}:
                return self.start + 5.0
            if phase == "accuracy":
                return self.start + self.seed_seconds * len(runner.asked[-1].seeds)
            blocks = 6 * STEP * batch_of(config) / 8
            compiling = self.compiling if config["compile_mode"] else 0.0
            return self.start + 1.5 + compiling + blocks

        runner = timed_runner(
            monkeypatch,
            measure=self.measure,
            quality=self.quality,
            gate=lambda config: agreeing(),
            seconds=seconds,
            seed_seconds=self.seed_seconds,
        )
        return runner


WORKLOADS = {
    "all alike": Slow(),
    "barely faster, refused": Slow(gain=1.04, confirmed=0.995),
    "barely faster": Slow(gain=1.04),
    "faster": Slow(gain=1.5),
    "faster by the batch": Slow(by_batch=1.4),
    "faster by a batch of which seeds are undecided": Slow(by_batch=1.4, loses=0.018),
    "slow seeds": Slow(by_batch=1.4, seed_seconds=15.0),
    "quick to start": Slow(start=2.0, gain=1.04, confirmed=0.995),
    "slow to start": Slow(start=40.0, gain=1.04, confirmed=0.995),
    "compiling": Slow(compiling=25.0, gain=1.04),
}


AT_ONCE, AT_THE_END = 60.0, 330.0
CASES = [
    *((name, AT_ONCE) for name in WORKLOADS),
    ("barely faster, refused", AT_THE_END),
    ("faster by the batch", AT_THE_END),
    ("slow seeds", AT_THE_END),
]


@pytest.mark.parametrize(("name", "budget"), CASES)
def test_a_search_with_the_time_that_a_refusal_names_has_an_answer(
    name, budget, monkeypatch, tmp_path
):
    with pytest.raises(NotSearchedEnoughError) as refused:
        end(WORKLOADS[name], tmp_path, budget, monkeypatch)
    end(WORKLOADS[name], tmp_path, refused.value.seconds, monkeypatch)


def end(workload, folder, budget, monkeypatch):
    """Search until the answer."""
    space = COMPILED if workload.compiling else SPACE
    options = unstored_in(folder, space, trials=16, time_budget_seconds=budget)
    *_, last = search(options, workload.runner(monkeypatch))
    assert isinstance(last, Answered)
