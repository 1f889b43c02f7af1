"""What bounds training, and which knobs cannot matter: from what each stage takes on its own.

A knob is frozen only where it could not win even if computing a sample took a quarter of what it
takes now, with the largest batch of the space: what is negligible beside a slow computation need
not be beside a fast one, and what a step costs whatever its batch is shared by more samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from statistics import median

from pydantic import TypeAdapter

from autotune.best import Stage
from autotune.config import TrainingConfig
from autotune.job import Diagnose, MeasurePlan
from autotune.knobs.base import Value, spelled
from autotune.machine import Machine
from autotune.outcome import Diagnosed, Failure, as_failure, describe
from autotune.space import SearchSpace
from autotune.tuning.running.runner import Runner
from autotune.tuning.scene import Scene
from autotune.tuning.storing.own_runs import noted_runs
from autotune.tuning.storing.study import TuningStudy

Useless = Callable[[Value], bool]
LOADER = ("num_workers", "prefetch_factor", "persistent_workers")
COMPUTE = (
    "amp_dtype",
    "float32_matmul_precision",
    "compile_mode",
    "channels_last",
    "cudnn_benchmark",
    "fused_optimizer",
)
DIAGNOSIS = "diagnosis"
"""Of the study's notes."""
NEGLIGIBLE = 0.03
"""A gain that is not worth a trial: less than the noise of most machines."""
_MOST_SPEEDUP = 4.0
# No other setting makes up for a precision that the CPU has no instructions for.
_FAR_SLOWER = 1.5
_MOSTLY_WORK = 1.6
# Two timings of the same may differ by twice as much.
_NOISE = 0.05
# Training is no faster than its slowest stage, but two processes of the same settings differ: by
# a tenth to a third where the tables were recorded. What lies well beyond that is no noise.
_FAR_FASTER = 1.5
_SECONDS = 90.0
# What follows from it are orders of magnitude.
_PLAN = MeasurePlan(block_seconds=0.1, looks=(3,))
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
    reached: float | None = None
    """Samples per second of all stages together; None where that is not known."""

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
        return limits_of(self.stages)

    @property
    def bound(self) -> Stage:
        """Which stage training waits for with the user's own settings."""
        limits = self.stage_limits()
        return min(limits, key=lambda stage: limits[stage])

    def stage_limits(self) -> dict[Stage, float]:
        """Samples per second of each stage alone, with as many workers as the user's settings."""
        workers = int(self.baseline["num_workers"] or 0)
        loading = {one.num_workers: one.seconds for one in self.stages.loading}
        seconds: dict[Stage, float] = {
            "loading": loading.get(workers, self.load_seconds / max(1, workers)),
            "copying": self.stages.transfer_seconds,
            "computing": self.stages.compute_seconds,
        }
        return {stage: self.stages.batch_size / s for stage, s in seconds.items() if s > 0}

    @property
    def reached_share(self) -> float | None:
        """What all stages reach together over what the slowest reaches alone."""
        return None if self.reached is None else self.reached / self.stage_limits()[self.bound]

    @property
    def doubt(self) -> str | None:
        """Why the stages tell nothing of training, which is far faster than the slowest of them."""
        share = self.reached_share
        if share is None or share < _FAR_FASTER:
            return None
        return (
            f"training reaches {100 * share:.0f} % of what {self.bound} alone reached; something "
            "else ran while the stages were timed, or their batch takes longer than others"
        )

    @property
    def compute_limit(self) -> float:
        """Samples per second that no setting of the loader can exceed."""
        return self.stages.batch_size / self.stages.compute_seconds

    def ceiling(self, space: SearchSpace) -> float | None:
        """Samples per second that nothing in `space` can exceed; None where that is not known."""
        if self.doubt:
            return None
        loads = {*LOADER, "pin_memory"}
        if self.machine.has_accelerator:
            # On a CPU it is computing that threads change, and fewer may be faster.
            loads.add("num_threads")
        return self.compute_limit if set(space.varied()) <= loads else None

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
        slower = (stages.bfloat16_compute_seconds or 0.0) / stages.compute_seconds
        # Where a larger batch takes no longer, a step is mostly overhead, which it would share.
        works = (stages.double_compute_seconds or 0.0) > _MOSTLY_WORK * stages.compute_seconds
        if slower > _FAR_SLOWER and works and not self.machine.has_accelerator:
            yield "amp_dtype", f"a step in bfloat16 takes {slower:.2g} times as long"

    def useless(self) -> dict[str, tuple[Useless, str]]:
        """Values of knobs that cannot be of use, each as a test with the reason."""
        most = self.most_workers()
        found: dict[str, tuple[Useless, str]] = {
            "num_workers": (lambda value: int(value or 0) > most, f"no faster than {most}")
        }
        launch, compute = self.stages.launch_seconds, self.stages.compute_seconds
        if launch is not None and launch < compute / _MOST_SPEEDUP:
            # CUDA graphs are what this mode adds to `default`: they save launching alone.
            why = f"launching a step takes {_share(launch, compute)} of computing it"
            found["compile_mode"] = (lambda value: value == "reduce-overhead", why)
        return found

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


def limits_of(stages: Diagnosed) -> dict[str, float]:
    """Samples per second of each stage if it were the only one; none that takes no time."""
    loading = sorted(stages.loading, key=lambda one: one.num_workers)
    seconds = {
        **{f"loader, num_workers={one.num_workers}": one.seconds for one in loading},
        "copy to device": stages.transfer_seconds,
        "compute": stages.compute_seconds,
    }
    return {name: stages.batch_size / s for name, s in seconds.items() if s > 0}


def noted_diagnosis(scene: Scene, study: TuningStudy) -> Diagnosis | None:
    """What the study knows already."""
    noted = study.noted(DIAGNOSIS)
    if noted is None:
        return None
    return diagnosis_of(scene, _adapter().validate_python(noted), _reached(study))


def diagnose(scene: Scene, runner: Runner, study: TuningStudy) -> Diagnosis | str:
    """Time the stages and note them; a text says why that failed, which nothing depends on."""
    if scene.options.script is not None:
        return "the stages of a script cannot be timed one by one"
    outcome = time_stages(scene, runner)
    if not isinstance(outcome, Diagnosed):
        return describe(outcome)
    study.note(DIAGNOSIS, asdict(outcome))
    return diagnosis_of(scene, outcome, _reached(study))


def diagnosis_of(scene: Scene, stages: Diagnosed, reached: float | None) -> Diagnosis:
    """What follows from the stages in this scene, where all together reach so many samples/s."""
    sizes = [int(size or 1) for size in scene.space.domains["batch_size"]]
    return Diagnosis(stages, scene.machine, scene.baseline, max(sizes), reached)


def _reached(study: TuningStudy) -> float | None:
    runs = noted_runs(study)
    return median(run.samples_per_second for run in runs) if runs else None


def time_stages(scene: Scene, runner: Runner) -> Diagnosed | Failure:
    """Each stage on its own, in a child."""
    cores = scene.machine.host.usable_cores
    workers = tuple(dict.fromkeys((0, min(cores, 2), max(1, cores // 2))))
    seconds = min(_SECONDS, scene.options.trial_timeout_seconds)
    halves = not scene.machine.has_accelerator and scene.baseline["amp_dtype"] is None
    asks = halves and "bfloat16" in scene.space.domains["amp_dtype"]
    job = scene.job(Diagnose(_PLAN, workers, asks), scene.baseline, seconds)
    outcome = runner.run(job, scene.options.folder / "trials" / "diagnosis")
    return outcome if isinstance(outcome, Diagnosed) else as_failure(outcome)


@cache
def _adapter() -> TypeAdapter[Diagnosed]:
    return TypeAdapter(Diagnosed)


def narrowed(space: SearchSpace, diagnosis: Diagnosis) -> SearchSpace:
    """The space without what cannot matter; the baseline stays inside."""
    if diagnosis.doubt:
        return space.noted([f"nothing is left out: {diagnosis.doubt}"])
    domains = dict(space.domains)
    notes = list(space.notes)
    for name, reason in diagnosis.frozen().items():
        if len(domains[name]) > 1:
            domains[name] = _own(domains[name], diagnosis.baseline[name])
            notes.append(f"{name} stays {spelled(domains[name][0])}: {reason}")
    for name, (is_useless, reason) in diagnosis.useless().items():
        own = diagnosis.baseline[name]
        dropped = [value for value in domains[name] if value != own and is_useless(value)]
        if dropped:
            notes.append(f"{name}={', '.join(map(spelled, dropped))} dropped: {reason}")
        domains[name] = tuple(value for value in domains[name] if value not in dropped)
    return replace(space, domains=domains, notes=tuple(notes))


def _own(domain: tuple[Value, ...], own: Value) -> tuple[Value, ...]:
    """The user's own value; of a knob that means nothing now, the first one."""
    return (own,) if own in domain else domain[:1]


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2g} %"
