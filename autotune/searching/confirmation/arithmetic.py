"""The share of the device's arithmetic that a result uses: model FLOPs utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.configuration.evidence import Arithmetic
from autotune.configuration.job import CountFlops
from autotune.configuration.training_config import TrainingConfig
from autotune.study.facts import matmul_rate_key
from autotune.values.measurement import Measurement
from autotune.values.outcome import CountedFlops


def arithmetic_of(
    prober: AccuracyProber, config: TrainingConfig, runs: Sequence[Measurement]
) -> Arithmetic | None:
    """Count the arithmetic of a configuration; None for a script, or if it cannot be counted.

    Side effect: notes the machine's rate of matrix products in the study, if it was not known.

    Args:
        prober: context, runner and study of the search.
        config: the result's settings.
        runs: the processes behind the throughput that is stated for it.
    """
    context, notes = prober.context, prober.study.notes
    if context.options.workload.script is not None:
        return None
    machine = context.machine
    start = matmul_rate_key(machine.fingerprint, "")
    known = tuple(key.removeprefix(start) for key in notes.matmul_rates if key.startswith(start))
    # Launchers of several processes leave each of them one thread.
    alone = context.processes == 1
    threads = machine.default_num_threads if alone else machine.host.usable_cores
    folder = context.options.study.folder / "trials" / "arithmetic"
    found = prober.runner.run(context.job(CountFlops(threads, known), config), folder)
    if not isinstance(found, CountedFlops) or found.number_format is None:
        return None
    key = matmul_rate_key(machine.fingerprint, found.number_format)
    if found.matmul_flops_per_second is not None:
        notes.set_matmul_rate(key, found.matmul_flops_per_second)
    rate = notes.matmul_rates.get(key)
    devices = context.processes if machine.has_accelerator else 1
    return used(found, runs, None if rate is None else devices * rate)


def used(
    found: CountedFlops, runs: Sequence[Measurement], matmul_flops_per_second: float | None
) -> Arithmetic:
    """Return the use of the arithmetic.

    Args:
        found: the FLOPs of a sample, and the format of their products.
        runs: the processes behind the throughput that is stated.
        matmul_flops_per_second: the rate of matrix products on all devices; None if not known.
    """
    rate = median(run.samples_per_second for run in runs)
    return Arithmetic(
        flops_per_sample=found.flops_per_sample,
        number_format=found.number_format,
        matmul_flops_per_second=matmul_flops_per_second,
        mfu=_utilisation(found.flops_per_sample, rate, matmul_flops_per_second),
    )


def _utilisation(
    flops: float | None, samples_per_second: float, matmul_flops_per_second: float | None
) -> float | None:
    """Return the model FLOPs utilisation; None if unknown, or if a rate above 1 contradicts it."""
    if flops is None or matmul_flops_per_second is None:
        return None
    share = flops * samples_per_second / matmul_flops_per_second
    return float(f"{share:.3g}") if share <= 1 else None
