"""Findings of a profile: what a training's time goes to besides computing, and the remedies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from autotune.configuration.search_space import SearchSpace
from autotune.searching.run.diagnosis import NEGLIGIBLE, Diagnosis
from autotune.values.machine import Machine
from autotune.values.outcome import Doing, Profiled, WorkloadFacts
from autotune.values.text import size, span

# Share of the memory that a dataset may take, and of a step from which on launching bounds it.
_DATASET, _SMALL_OPERATORS = 1 / 4, 0.2
# Reads of a step that are told though a CPU pays nothing, and more compilations than are usual.
_MANY_READS, _OFTEN = 4, 3
# How many times as much memory each half of the steps leaves in use; more on a CPU, whose heap
# grows for a while in any training. And tensors that each step leaves behind.
_GROWN, _GROWN_ON_CPU, _LEFT = 1.05, 1.25, 0.5
_MOST_PLACES, _NAMED = 3, 0.01


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a training's time goes to, with its remedy."""

    name: str
    share: float | None
    """Share of the time that it costs, 0 to 1; None if it ends a long run instead."""
    evidence: str
    change: str
    """Change of the code that mends it, an imperative."""
    settings: Sequence[str] = ()
    """Settings that may mend it, too, and that a search varies."""


@dataclass(frozen=True)
class ProfiledTraining:
    """All that a profile knows of a training."""

    seen: Profiled
    facts: WorkloadFacts
    machine: Machine
    space: SearchSpace
    """The search space, less what cannot matter."""
    memory_limit_bytes: int
    diagnosis: Diagnosis | None = None
    """The phases of a step; None if they are not known."""

    def findings(self) -> list[Finding]:
        """Return what ends a run, then what costs 3 % of the time or more, the costliest first."""
        found = (*self._of_memory(), *self._of_data(), *self._of_steps(), *self._of_the_loop())
        varied = self.space.varied().keys()
        worth = [
            replace(one, settings=[name for name in one.settings if name in varied])
            for one in found
            if not one.share or one.share >= NEGLIGIBLE
        ]
        return sorted(worth, key=lambda one: -2.0 if one.share is None else -one.share)

    def _of_memory(self) -> Iterator[Finding]:
        used, left = self.seen.memory, self.seen.kept_graphs
        told = [f"{left:.2g} tensors a step are kept with their graph"] if left >= _LEFT else []
        grown = _GROWN if self.machine.has_accelerator else _GROWN_ON_CPU
        if len(used) > 1 and all(grown * one < later for one, later in pairwise(used)):
            more = used[-1] - used[0]
            each = size(more // max(1, self.seen.steps))
            full = self.seen.seconds * max(0, self.memory_limit_bytes - used[-1]) / more
            told.insert(0, f"by {each} a step, reaching the limit in {span(full)}")
        if told:
            change = "keep loss.item() or loss.detach() instead of the loss, and empty lists"
            yield Finding("memory that grows", None, "; ".join(told), change)
        if retries := self.seen.allocator_retries:
            freed = f"it had no memory left and freed its cache {retries} times"
            change = "use smaller batches, or PYTORCH_ALLOC_CONF=expandable_segments:True"
            settings = ("batch_size", "env.PYTORCH_ALLOC_CONF")
            yield Finding("retries of the allocator", 0.0, freed, change, settings)

    def _of_data(self) -> Iterator[Finding]:
        seen, facts = self.seen, self.facts
        wait, (_, lines) = self._share(seen.wait_seconds), self._spent("loading")
        if wait:
            own = self.diagnosis.baseline if self.diagnosis else facts.baseline
            told = f"num_workers={own['num_workers']}{lines and ', '}{lines}"
            change = "make samples cheaper, for example by storing them decoded"
            settings = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
            yield Finding("waiting for data", wait, told, change, settings)
        held = (facts.dataset_samples or 0) * facts.sample_bytes
        copied = self.diagnosis.stages.transfer_seconds if self.diagnosis else 0.0
        saved = self._share(seen.wait_seconds + copied * self._batches)
        if 0 < held <= _DATASET * self.memory_limit_bytes and saved:
            told = f"its {facts.dataset_samples} samples are {size(held)} as tensors"
            change = "load them to the device once and index batches there (unless augmented)"
            yield Finding("a dataset that fits into memory", saved, told, change)
        if seen.padding:
            told = f"{percent(seen.padding)} of the positions of token IDs or masks"
            change = "pad to a batch's longest sample, and put samples of like length together"
            yield Finding("padding", seen.padding * (1 - wait), told, change)

    def _of_steps(self) -> Iterator[Finding]:
        seen, own = self.seen, self.seen.own
        share, told = self._launching()
        if share >= _SMALL_OPERATORS:
            change = "use larger batches, and fewer but larger operators"
            settings = ("batch_size", "compile_mode", "optimizer_impl")
            yield Finding("launching many small operators", share, told, change, settings)
        if own is not None and own.is_uneven:
            told = f"{percent(own.slow / own.count)} of the steps take three times as long or more"
            told += f", the longest one in {seen.slow_line}" if seen.slow_line else ""
            share = self._share(own.slow_seconds - own.slow * own.median_seconds)
            change = "check what these do differently: other shapes, garbage collection"
            yield Finding("uneven steps", share, told, change, ("compile_dynamic", "gc"))
        if seen.compilations >= _OFTEN:
            told = f"code was compiled {seen.compilations} times after the first steps"
            change = "keep shapes and arguments the same, or mark those that change as dynamic"
            yield Finding("recompilation", seen.compile_share, told, change, ("compile_dynamic",))

    def _of_the_loop(self) -> Iterator[Finding]:
        accelerated, reads = self.machine.has_accelerator, self.seen.reads
        share, lines = self._spent("reading")
        most = sorted(filter(None, reads), key=lambda line: -reads[line])[:_MOST_PLACES]
        told = ", ".join(f"{line} ({reads[line]:.3g} a step)" for line in most) or lines
        change = "add up on the device, and call .item(), .cpu() or print() every 50 steps"
        if accelerated and share >= NEGLIGIBLE:
            yield Finding("reading tensors in the loop", share, told, change)
        elif not accelerated and sum(reads.values()) >= _MANY_READS:
            told += ": costs nothing on a CPU, but on a GPU each read waits for the device"
            yield Finding("reading tensors in the loop", 0.0, told, change)
        share, lines = self._spent("writing")
        if share:
            change = "write less often, or in another thread"
            yield Finding("checkpoints and logging in the loop", share, lines, change)

    def _launching(self) -> tuple[float, str]:
        """Return the share of the time that launching costs, and the evidence."""
        seen, diagnosis = self.seen, self.diagnosis
        if diagnosis is not None and diagnosis.bound == "launching":
            idle = 1 - (diagnosis.busy_share or 0.0)
            return idle, f"the GPU waits for Python in {percent(idle)} of a step"
        if self.machine.has_accelerator or seen.own is None:
            return 0.0, ""
        share = seen.operators * seen.operator_seconds / max(seen.own.median_seconds, 1e-9)
        each = f"{1e6 * seen.operator_seconds:.2g} microseconds even on one number"
        share = min(1.0, share) * (1 - self._share(seen.wait_seconds))
        return share, f"{seen.operators:.0f} a step, each of which takes {each}"

    @property
    def _batches(self) -> float:
        """Batches that were trained on meanwhile; 0 if that is not known."""
        if self.diagnosis is None or self.diagnosis.reached is None:
            return 0.0
        return self.seen.seconds * self.diagnosis.reached / self.diagnosis.stages.samples

    def _share(self, seconds: float) -> float:
        """Return the share of the time that was watched; of a GPU's, no more than it may idle."""
        busy = (self.diagnosis.stages.busy_seconds or 0.0) if self.diagnosis else 0.0
        idle = self.seen.seconds - busy * self._batches
        return max(0.0, min(idle, seconds) / max(self.seen.seconds, 1e-9))

    def _spent(self, doing: Doing) -> tuple[float, str]:
        """Return the share of the time of an activity, and the lines that take most of it."""
        seconds = self.seen.spent.get(doing, {})
        shares = {line: self._share(each) for line, each in seconds.items() if line}
        longest = sorted(shares, key=lambda line: -shares[line])[:_MOST_PLACES]
        told = (f"{line} ({percent(shares[line])})" for line in longest if shares[line] >= _NAMED)
        return self._share(sum(seconds.values())), ", ".join(told)


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f} %"
