"""What bounds training, and which knobs cannot matter: from what each stage takes on its own.

A knob is frozen only where it could not win even if computing took a quarter of what it takes now,
which half precision, compilation and larger batches together seldom exceed: what is negligible
beside a slow computation need not be beside a fast one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from pydantic import TypeAdapter

from autotune.config import TrainingConfig
from autotune.job import Diagnose, MeasurePlan
from autotune.knobs.base import Value, spelled
from autotune.machine import Machine
from autotune.outcome import Diagnosed, Loading
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
_NOTE = "diagnosis"
# Spare workers for batches that take longer than others.
_SPARE = 1.25


@dataclass(frozen=True)
class Diagnosis:
    """The stages of the baseline, and what follows from them."""

    stages: Diagnosed
    machine: Machine
    baseline: TrainingConfig

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
        seconds = {
            "loader, 1 process": self.load_seconds,
            **{f"loader, {one.num_workers} workers": one.seconds for one in self._with_workers()},
            "copy to device": self.stages.transfer_seconds,
            "compute": self.stages.compute_seconds,
        }
        return {name: self.stages.batch_size / s for name, s in seconds.items() if s > 0}

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

    def _with_workers(self) -> Iterator[Loading]:
        return (one for one in self.stages.loading if one.num_workers)

    def _frozen(self) -> Iterator[tuple[str, str]]:
        stages, fastest = self.stages, self.stages.compute_seconds / _MOST_SPEEDUP
        if self.load_seconds < NEGLIGIBLE * fastest and not self.baseline["num_workers"]:
            why = f"loading takes {_share(self.load_seconds, stages.compute_seconds)} of computing"
            yield from ((name, why) for name in LOADER)
        if self.machine.has_accelerator and stages.transfer_seconds < NEGLIGIBLE / 3 * fastest:
            share = _share(stages.transfer_seconds, stages.compute_seconds)
            yield "pin_memory", f"copying takes {share} of computing"
        if self._is_loader_bound():
            why = (
                f"the loader makes {stages.batch_size / self.fastest_load_seconds:.4g} samples/s "
                f"at most, and {self.compute_limit:.4g} can be computed already"
            )
            yield from ((name, why) for name in COMPUTE)
        elif stages.optimizer_seconds < NEGLIGIBLE / 3 * stages.compute_seconds:
            why = f"the optimizer takes {_share(stages.optimizer_seconds, stages.compute_seconds)}"
            yield "fused_optimizer", f"{why} of a step"

    def _is_loader_bound(self) -> bool:
        """For good: whatever the workers. On a CPU they share the cores with computing."""
        if not self.machine.has_accelerator:
            return False
        return self.fastest_load_seconds > (1 + NEGLIGIBLE) * self.stages.compute_seconds

    def most_workers(self) -> int:
        """More cannot be of use even to the fastest computation."""
        needed = _SPARE * self.load_seconds * _MOST_SPEEDUP / self.stages.compute_seconds
        return 2 * math.ceil(needed)

    def largest_batch(self) -> int | None:
        """Beyond this one, computing gains next to nothing; None where that is not known.

        A step takes a + b B seconds. With b at a quarter of what it is, twice the batch would have
        to gain less than a few percent.
        """
        double = self.stages.double_compute_seconds
        if double is None:
            return None
        each = max(0.0, double - self.stages.compute_seconds) / _MOST_SPEEDUP
        fixed = max(0.0, 2 * self.stages.compute_seconds - double)
        size, seconds = self.stages.batch_size, fixed + each
        while seconds > 0 and 2 * seconds / (seconds + each) - 1 > NEGLIGIBLE:
            size, each = 2 * size, 2 * each
            seconds = fixed + each
        return size


def diagnose(scene: Scene, runner: Runner, study: TuningStudy) -> Diagnosis | None:
    """The stages as the study has noted them, or as a child times them now.

    None where that fails, which is for the baseline to say, and where trials were made without.
    """
    noted = study.noted(_NOTE)
    if noted is None and study.finished():
        return None
    if noted is None:
        stages = time_stages(scene, runner)
        study.note(_NOTE, None if stages is None else asdict(stages))
    else:
        stages = TypeAdapter(Diagnosed).validate_python(noted)
    return None if stages is None else Diagnosis(stages, scene.machine, scene.baseline)


def time_stages(scene: Scene, runner: Runner) -> Diagnosed | None:
    """Each stage on its own, in a child; None where it fails."""
    cores = scene.machine.host.usable_cores
    workers = tuple(dict.fromkeys((0, min(cores, 2), max(1, cores // 2))))
    job = scene.job(Diagnose(MeasurePlan(), workers), scene.baseline)
    outcome = runner.run(job, scene.options.folder / "trials" / "diagnosis")
    return outcome if isinstance(outcome, Diagnosed) else None


def narrowed(space: SearchSpace, diagnosis: Diagnosis) -> SearchSpace:
    """The space without what cannot matter; the baseline stays inside."""
    frozen = diagnosis.frozen()
    domains = dict(space.domains)
    notes = list(space.notes)
    for name, reason in frozen.items():
        if len(domains[name]) > 1:
            domains[name] = _own(domains[name], diagnosis.baseline[name])
            notes.append(f"{name} stays {spelled(domains[name][0])}: {reason}")
    for name, most in _most(diagnosis).items():
        kept = tuple(
            value
            for value in domains[name]
            if value == diagnosis.baseline[name] or int(value or 0) <= most
        )
        dropped = [spelled(value) for value in domains[name] if value not in kept]
        if dropped:
            notes.append(f"{name}={', '.join(dropped)} dropped: no faster than {most}")
        domains[name] = kept
    return replace(space, domains=domains, notes=tuple(notes))


def _most(diagnosis: Diagnosis) -> Mapping[str, int]:
    most = {"num_workers": diagnosis.most_workers()}
    largest = diagnosis.largest_batch()
    return most if largest is None else {**most, "batch_size": largest}


def _own(domain: tuple[Value, ...], own: Value) -> tuple[Value, ...]:
    """The user's own value; of a knob that means nothing now, the first one."""
    return (own,) if own in domain else domain[:1]


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2g} %"
