"""What bounds training, and which knobs cannot matter: from what each stage takes on its own.

A knob is frozen only where it could not win even if computing a sample took a quarter of what it
takes now, with the largest batch of the space: what is negligible beside a slow computation need
not be beside a fast one, and what a step costs whatever its batch is shared by more samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache

from pydantic import TypeAdapter

from autotune.config import TrainingConfig
from autotune.job import Diagnose, MeasurePlan
from autotune.knobs.base import Value, spelled
from autotune.machine import Machine
from autotune.outcome import Diagnosed, Failure, as_failure, describe
from autotune.space import SearchSpace
from autotune.tuning.runner import Runner
from autotune.tuning.scene import Scene
from autotune.tuning.study import TuningStudy

LOADER = ("num_workers", "prefetch_factor", "persistent_workers")
COMPUTE = (
    "amp_dtype",
    "float32_matmul_precision",
    "compile_mode",
    "channels_last",
    "cudnn_benchmark",
    "fused_optimizer",
)
NEGLIGIBLE = 0.03
"""A gain that is not worth a trial: less than the noise of most machines."""
_MOST_SPEEDUP = 4.0
# Two timings of the same may differ by twice as much.
_NOISE = 0.05
_SECONDS = 90.0
# What follows from it are orders of magnitude.
_PLAN = MeasurePlan(block_seconds=0.1, looks=(3,))
_NOTE = "diagnosis"
# Spare workers for batches that take longer than others.
_SPARE = 1.25


@dataclass(frozen=True)
class Diagnosis:
    """The stages of the baseline, and what follows from them."""

    stages: Diagnosed
    machine: Machine
    baseline: TrainingConfig
    largest_offered: int
    """The largest batch of the search space."""

    @property
    def load_seconds(self) -> float:
        """Of making a batch in one process."""
        return self.stages.loading[0].seconds

    @property
    def fastest_load_seconds(self) -> float:
        """Of getting a batch with as many workers as there are cores, or as were tried."""
        cores = self.machine.host.usable_cores
        return min(self.load_seconds / cores, *(one.seconds for one in self.stages.loading))

    def limits(self) -> dict[str, float]:
        """Samples per second of each stage if it were the only one; none that takes no time."""
        stages = self.stages
        seconds = {
            **{f"loader, num_workers={one.num_workers}": one.seconds for one in stages.loading},
            "copy to device": stages.transfer_seconds,
            "compute": stages.compute_seconds,
        }
        return {name: stages.batch_size / s for name, s in seconds.items() if s > 0}

    @property
    def bound(self) -> str:
        """Which stage training waits for with the user's own settings."""
        workers = self.baseline["num_workers"]
        loading = {one.num_workers: one.seconds for one in self.stages.loading}
        load = loading.get(int(workers or 0), self.load_seconds / max(1, int(workers or 0)))
        stages = {
            "loading": load,
            "copying": self.stages.transfer_seconds,
            "computing": self.stages.compute_seconds,
        }
        return max(stages, key=lambda name: stages[name])

    @property
    def compute_limit(self) -> float:
        """Samples per second that no setting of the loader can exceed."""
        return self.stages.batch_size / self.stages.compute_seconds

    def ceiling(self, space: SearchSpace) -> float | None:
        """Samples per second that nothing in `space` can exceed; None where computing varies."""
        loads_only = set(space.varied()) <= {*LOADER, "pin_memory"}
        return self.compute_limit if loads_only else None

    def frozen(self) -> dict[str, str]:
        """Knobs that cannot gain anything worth a trial, each with the reason."""
        return dict(self._frozen())

    def _frozen(self) -> Iterator[tuple[str, str]]:
        stages, fastest = self.stages, self.fastest_compute_seconds
        if (
            self._at_most(self.load_seconds) < NEGLIGIBLE * fastest
            and not self.baseline["num_workers"]
        ):
            why = f"loading takes {_share(self.load_seconds, stages.compute_seconds)} of computing"
            yield from ((name, why) for name in LOADER)
        copying = self._at_most(stages.transfer_seconds)
        if self.machine.has_accelerator and copying < NEGLIGIBLE * fastest:
            share = _share(stages.transfer_seconds, stages.compute_seconds)
            yield "pin_memory", f"copying takes {share} of computing"
        if self._is_loader_bound():
            why = (
                f"the loader makes {stages.batch_size / self.fastest_load_seconds:.4g} samples/s "
                f"at most, and {self.compute_limit:.4g} can be computed already"
            )
            yield from ((name, why) for name in COMPUTE)
        elif stages.optimizer_seconds < NEGLIGIBLE / _MOST_SPEEDUP * stages.compute_seconds:
            why = f"the optimizer takes {_share(stages.optimizer_seconds, stages.compute_seconds)}"
            yield "fused_optimizer", f"{why} of a step"

    def _is_loader_bound(self) -> bool:
        """For good: whatever the workers. On a CPU they share the cores with computing."""
        if not self.machine.has_accelerator:
            return False
        return self.fastest_load_seconds > (1 + 2 * _NOISE) * self.stages.compute_seconds

    @property
    def fastest_compute_seconds(self) -> float:
        """The least that computing the largest batch can be hoped to take.

        A step takes a + b B seconds; b is at least what the noise of two timings leaves of it.
        """
        compute, double = self.stages.compute_seconds, self.stages.double_compute_seconds
        each = max(0.0, (1 - _NOISE) * (double or compute) - (1 + _NOISE) * compute)
        return (compute - each + each * self._growth) / _MOST_SPEEDUP

    @property
    def _growth(self) -> float:
        """The largest batch of the space over the user's own."""
        return max(1.0, self.largest_offered / self.stages.batch_size)

    def _at_most(self, seconds: float) -> float:
        """What a stage that handles samples one by one takes for the largest batch."""
        return seconds * self._growth

    def most_workers(self) -> int:
        """More cannot be of use even to the fastest computation."""
        return 2 * math.ceil(
            _SPARE * self._at_most(self.load_seconds) / self.fastest_compute_seconds
        )


def noted_diagnosis(scene: Scene, study: TuningStudy) -> Diagnosis | None:
    """What the study knows already."""
    noted = study.noted(_NOTE)
    return None if noted is None else diagnosis_of(scene, _adapter().validate_python(noted))


def diagnose(scene: Scene, runner: Runner, study: TuningStudy) -> Diagnosis | str:
    """Time the stages and note them; a text says why that failed, which nothing depends on."""
    outcome = time_stages(scene, runner)
    if not isinstance(outcome, Diagnosed):
        return describe(outcome)
    study.note(_NOTE, asdict(outcome))
    return diagnosis_of(scene, outcome)


def diagnosis_of(scene: Scene, stages: Diagnosed) -> Diagnosis:
    """What follows from the stages in this scene."""
    sizes = [int(size or 1) for size in scene.space.domains["batch_size"]]
    return Diagnosis(stages, scene.machine, scene.baseline, max(sizes))


def time_stages(scene: Scene, runner: Runner) -> Diagnosed | Failure:
    """Each stage on its own, in a child."""
    cores = scene.machine.host.usable_cores
    workers = tuple(dict.fromkeys((0, min(cores, 2), max(1, cores // 2))))
    seconds = min(_SECONDS, scene.options.trial_timeout_seconds)
    job = scene.job(Diagnose(_PLAN, workers), scene.baseline, seconds)
    outcome = runner.run(job, scene.options.folder / "trials" / "diagnosis")
    return outcome if isinstance(outcome, Diagnosed) else as_failure(outcome)


@cache
def _adapter() -> TypeAdapter[Diagnosed]:
    return TypeAdapter(Diagnosed)


def narrowed(space: SearchSpace, diagnosis: Diagnosis) -> SearchSpace:
    """The space without what cannot matter; the baseline stays inside."""
    frozen = diagnosis.frozen()
    domains = dict(space.domains)
    notes = list(space.notes)
    for name, reason in frozen.items():
        if len(domains[name]) > 1:
            domains[name] = _own(domains[name], diagnosis.baseline[name])
            notes.append(f"{name} stays {spelled(domains[name][0])}: {reason}")
    most = diagnosis.most_workers()
    offered, own = domains["num_workers"], diagnosis.baseline["num_workers"]
    kept = tuple(value for value in offered if value == own or int(value or 0) <= most)
    dropped = ", ".join(spelled(value) for value in offered if value not in kept)
    if dropped:
        notes.append(f"num_workers={dropped} dropped: no faster than {most}")
    domains["num_workers"] = kept
    return replace(space, domains=domains, notes=tuple(notes))


def _own(domain: tuple[Value, ...], own: Value) -> tuple[Value, ...]:
    """The user's own value; of a knob that means nothing now, the first one."""
    return (own,) if own in domain else domain[:1]


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2g} %"
