"""Values that many tests need: machines, measurements, spaces. Plain, small and round."""

import hashlib
import platform
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Self

from autotune.configuration import best_config as schema
from autotune.configuration import evidence as proof
from autotune.configuration.search_space import SearchSpace, narrow, read_space
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.values.machine import Host, Machine, probe_host
from autotune.values.measurement import Block, Measurement
from autotune.values.outcome import WorkloadFacts

TINY_CONV = Path(__file__).parent / "workloads" / "tiny_conv.py"
GIB = 1 << 30

IMAGE_FACTS = WorkloadFacts(
    dataset_samples=10_000,
    image_batches=True,
    optimizer_options=True,
    has_evaluate=True,
    baseline={},
    repeated_blocks=True,
    has_checkpoint=True,
    attention=True,
    equal_groups=True,
    fills_memory=True,
    comm_dtypes=("bfloat16", "float16"),
)


class StandIn:
    """A runner that stands for a class of runners, of which it is the only one."""

    def __call__(self, *_: object, **__: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def host(cores: int = 2) -> Host:
    """A machine without quota or limit, all of whose cores may be used."""
    return Host(
        cpu_name="Test CPU",
        cpu_count=cores,
        affinity_count=cores,
        quota_cores=None,
        memory_bytes=8 * GIB,
        memory_limit_bytes=None,
        shm_bytes=GIB,
        compiler="/usr/bin/g++",
    )


def cpu_machine(cores: int = 2) -> Machine:
    """A CPU with native bfloat16, on which torch.compile works."""
    return Machine(
        host=host(cores),
        device="cpu",
        device_name="Test CPU",
        device_memory_bytes=None,
        python="3.12.0",
        torch="2.15.0",
        default_num_threads=cores,
        native_dtypes=("bfloat16",),
        matmul_precisions=("highest", "medium"),
        compile_modes=("default", "lite", "max-autotune-no-cudagraphs"),
        compile_obstacle="",
        cuda_graphs=False,
    )


def plain_cpu_machine(cores: int = 64) -> Machine:
    """A CPU without native half precision and without a compiler."""
    return replace(
        cpu_machine(cores),
        native_dtypes=(),
        matmul_precisions=("highest",),
        compile_obstacle="torch.compile needs a C++ compiler on CPU; none was found",
    )


def cuda_machine() -> Machine:
    """A GPU on which every value of every knob works."""
    return replace(
        cpu_machine(16),
        device="cuda:0",
        device_name="Test GPU",
        device_memory_bytes=80 * GIB,
        native_dtypes=("bfloat16", "float16"),
        matmul_precisions=("highest", "high", "medium"),
        compile_modes=(
            *("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"),
        ),
        cuda_graphs=True,
    )


def measurement(samples_per_second: float = 100.0, peak_bytes: int = GIB) -> Measurement:
    """Six equal blocks of 32 samples at this rate, without epoch boundaries."""
    block = Block(seconds=32 / samples_per_second, samples=32, wait_seconds=0.0)
    return Measurement(
        blocks=(block,) * 6,
        boundary_seconds=(),
        epoch_samples=None,
        warmup_step_seconds=(0.5, 0.1, 0.1),
        compile_seconds=0.0,
        start_seconds=2.0,
        build_seconds=0.5,
        peak_memory_bytes=peak_bytes,
    )


def narrowed(
    path: Path,
    machine: Machine,
    baseline: dict[str, Value] | None = None,
    facts: WorkloadFacts | None = None,
) -> SearchSpace:
    """The space of a file on a machine, for a baseline given by what is not a default in it."""
    settings = TrainingConfig.of(baseline or {}).resolved(machine)
    return narrow(read_space(path), machine, facts, settings)


def drawn(space: SearchSpace, random: Random) -> TrainingConfig:
    """A configuration of a space, drawn knob by knob."""
    return space.config({name: random.choice(values) for name, values in space.domains.items()})


def written(folder: Path, text: str, name: str = "space.yaml") -> Path:
    """A file with this text, in a folder that is made where there is none."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def edited(best: schema.BestConfig, **settings: Value) -> schema.BestConfig:
    """The same answer, of whose file somebody edited these settings after the search."""
    evidence = best.evidence.model_copy(update={"changed": best.changed})
    return best.model_copy(update={"config": {**best.config, **settings}, "evidence": evidence})


def with_not_proven(best: schema.BestConfig) -> schema.BestConfig:
    """The same answer, beside a faster trial that was not proven to train as well."""
    missed = proof.NotProven(
        trial=7, changed={"batch_size": 64}, quality=0.88, limit=0.891, seeds=6
    )
    evidence = best.evidence.model_copy(update={"not_proven": (missed,)})
    return best.model_copy(update={"evidence": evidence})


def with_not_confirmed(best: schema.BestConfig) -> schema.BestConfig:
    """The same answer, beside a faster trial that ended too early to be timed again."""
    reason = "it ended after 351 steps, too few to be timed"
    missed = proof.NotConfirmed(trial=3, changed={"num_workers": 2}, reason=reason)
    evidence = best.evidence.model_copy(update={"not_confirmed": (missed,)})
    return best.model_copy(update={"evidence": evidence})


def best_config(config: TrainingConfig, baseline: TrainingConfig) -> schema.BestConfig:
    """An answer that says `config` is 1.5 times as fast as `baseline`."""
    best = schema.BestConfig(
        config=config.as_dict(),
        evidence=schema.Evidence(
            objective="throughput",
            baseline=schema.Baseline(
                config=baseline.as_dict(), samples_per_second=100.0, ci95=(98.0, 102.5)
            ),
            best=schema.Throughput(samples_per_second=150.0, ci95=(149.0, 151.0)),
            speedup=schema.Speedup(ratio=1.5, ci95=(1.45, 1.55), rounds=6),
            compile_seconds=0.0,
            break_even_samples=0,
            arithmetic=proof.Arithmetic(flops_per_sample=1e6, number_format="float32"),
        ),
        constraints=schema.ConstraintEvidence(
            memory=proof.MemoryEvidence(peak_bytes=GIB, limit_bytes=2 * GIB, margin=-0.5),
            accuracy=proof.AccuracyEvidence(
                metric="evaluate",
                baseline=0.9,
                best=0.91,
                difference=0.01,
                difference_ci90=(0.004, 0.016),
                tolerance=0.009,
                margin=-0.02,
                samples=4096,
                epochs=0.41,
                share_of_run=0.002,
                smallest_shown=0.006,
                seeds=3,
                needs_full_run=True,
            ),
        ),
        machine=proof.MachineRecord(
            device="cpu",
            cpu="Test CPU",
            cores=2,
            memory_bytes=8 * GIB,
            torch="2.15.0",
            python="3.12.0",
            fingerprint="0123456789ab",
        ),
        provenance=schema.Provenance(
            study="tiny",
            storage="sqlite:///study.db",
            trial=7,
            model="model.py",
            model_sha256="0" * 64,
            autotune="0.1.0",
            created="2026-01-01T00:00:00+00:00",
        ),
    )
    return best.with_effects({})


def found_here(best: schema.BestConfig, model: Path) -> schema.BestConfig:
    """The same answer, as if it had been found on this machine for this model.py."""
    here = probe_host()
    machine = best.machine.model_copy(
        update={
            "cpu": here.cpu_name,
            "cores": here.usable_cores,
            "torch": version("torch"),
            "python": platform.python_version(),
        }
    )
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    source = {"model": str(model), "model_sha256": digest}
    provenance = best.provenance.model_copy(update=source)
    memory = best.constraints.memory.model_copy(update={"peak_bytes": 1})
    constraints = best.constraints.model_copy(update={"memory": memory})
    changes = {"machine": machine, "provenance": provenance, "constraints": constraints}
    return best.model_copy(update=changes)
