"""Describe the machine as torch sees it, and the workload: the first task of every search."""

from __future__ import annotations

import os
import platform
import sysconfig
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from autotune.configuration.job import Inspect, Job
from autotune.knobs import process_settings
from autotune.knobs.base import Value
from autotune.knobs.compile import repeated_blocks
from autotune.knobs.model import IMAGE_DIMENSIONS, fills_memory, mentions_attention
from autotune.knobs.stepping import has_equal_groups
from autotune.knobs.torch_private import compile_modes, has_triton, has_triton_package
from autotune.process.common.imports import own_modules
from autotune.training import memory
from autotune.training.batches import STREAM, bytes_in, tensors_in
from autotune.training.before_fork import Prepared, with_dataset
from autotune.training.ranks import ALONE, World, comm_dtypes, device_of_rank, join
from autotune.training.tasks import use_device
from autotune.training.training_setup import build_dataset, build_model
from autotune.training.workload import Workload, load_workload
from autotune.values.errors import UsageError, WorkloadError
from autotune.values.machine import Host, Machine, c_compiler, nvidia_driver, probe_host
from autotune.values.outcome import Inspected, TrialOutcome, WorkloadFacts

# Rows and columns; below this size CPU kernels ignore float32_matmul_precision.
_MATMUL_SIZE = 512
_TF32_CAPABILITY = (8, 0)


def inspect(job: Job, prepared: Prepared | None = None) -> TrialOutcome:
    """Describe the machine and, if the job names one, the workload.

    The workload is imported before a device is asked for: it may choose those that CUDA sees.
    """
    assert isinstance(job.task, Inspect)
    if job.task.visible_devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = job.task.visible_devices
    if job.model_path is None:
        return _described(job)
    if prepared:
        torch.set_num_threads(prepared.default_threads)
        found = _described(job)
        workload = prepared.take_over().as_today(job.task.baseline)
        facts = describe_workload(workload, prepared.own_settings)
        return replace(
            found,
            workload=facts,
            import_seconds=prepared.import_seconds,
            dataset_seconds=prepared.dataset_seconds,
            is_shared=True,
        )
    before, start = process_settings(), time.perf_counter()
    workload = load_workload(Path(job.model_path)).as_today(job.task.baseline)
    after, import_seconds = process_settings(), time.perf_counter() - start
    own = {name: value for name, value in after.items() if value != before[name]}
    torch.set_num_threads(int(before["num_threads"] or 1))
    found = _described(job)
    torch.set_num_threads(int(after["num_threads"] or 1))
    world, rank_uuids = _met(job, found.machine)
    workload, dataset_seconds = with_dataset(workload)
    facts = world.on_first(partial(describe_workload, workload, own))
    if not world.is_alone:
        device = torch.device(device_of_rank(found.machine.device))
        facts = replace(facts, comm_dtypes=comm_dtypes(device))
    return replace(
        found,
        workload=facts,
        import_seconds=import_seconds,
        dataset_seconds=dataset_seconds,
        processes=world.size,
        rank_uuids=rank_uuids,
    )


def _met(job: Job, machine: Machine) -> tuple[World, tuple[str, ...]]:
    """Return the processes of the job, once all are here, each on its device, and their UUIDs.

    Raises:
        UsageError: there are fewer devices.
    """
    processes = job.processes or int(os.environ["WORLD_SIZE"])
    if processes == 1:
        return ALONE, ()
    device = torch.device(device_of_rank(machine.device))
    use_device(device)
    world = join(processes, device, job.deadline_seconds)
    if not machine.has_accelerator:
        return world, ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    part = visible if "MIG-" in visible.upper() else ""  # of a GPU, whose UUID may be the whole's
    shared = world.shares((device_uuid(str(device)), part))
    for (uuid, _), count in Counter(shared).items():
        if uuid and count > 1:
            raise UsageError(
                f"{count} processes would train on one device ({device}). Let the launcher give "
                "each its own, or start fewer."
            )
    return world, tuple(uuid for uuid, _ in shared)


def _described(job: Job) -> Inspected:
    """Return the facts on the machine with the device that is wanted.

    Those of a script's processes are the first ones, by their numbers.

    Raises:
        UsageError: there is no such device.
    """
    assert isinstance(job.task, Inspect)
    machine = describe_machine(resolve_device(job.device))
    held, rank_uuids = memory.device_memory(torch.device(machine.device)), tuple[str, ...]()
    if machine.has_accelerator and job.task.processes > 1:
        seen = min(job.task.processes, torch.accelerator.device_count())
        rank_uuids = tuple(device_uuid(f"{machine.device_type}:{n}") for n in range(seen))
    free = None if held is None else held.free
    return Inspected(machine, None, device_uuid(machine.device), rank_uuids, device_free_bytes=free)


def resolve_device(device: str) -> str:
    """Return `device` in torch's words, such as cpu or cuda:0; "auto" is the GPU, if there is one.

    Raises:
        UsageError: the device does not exist, or is no device to train on.
    """
    if device == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        wanted = torch.device(device)
        torch.empty(1, device=wanted)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"--device {device}: {str(error).splitlines()[0]}") from error
    if wanted.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {device}: nothing can be trained there. Choose cpu or cuda:N.")
    return "cpu" if wanted.type == "cpu" else f"cuda:{wanted.index or 0}"


def device_uuid(device: str) -> str:
    """Return the GPU's UUID, which is the same in every process; "" for other devices."""
    if torch.device(device).type != "cuda":
        return ""
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))


def describe_machine(device: str) -> Machine:
    """Return the machine with everything that decides which knob values can work on it."""
    host, kind = probe_host(), torch.device(device).type
    name, memory = host.cpu_name, None
    if kind == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, memory = properties.name, int(properties.total_memory)
    return Machine(
        host=host,
        device=device,
        device_name=name,
        device_memory_bytes=memory,
        python=platform.python_version(),
        torch=torch.__version__,
        default_num_threads=torch.get_num_threads(),
        native_dtypes=_native_dtypes(device),
        matmul_precisions=_matmul_precisions(device),
        compile_modes=tuple(compile_modes()),
        compile_obstacle=_compile_obstacle(host, device),
        cuda_graphs=kind == "cuda",
        driver=nvidia_driver() if kind == "cuda" else "",
    )


def describe_workload(workload: Workload, own_settings: Mapping[str, Value]) -> WorkloadFacts:
    """Build model, dataset and one small batch, and describe them.

    `own_settings` are settings that the file changed in the process while it was imported. The user
    trains with them today, so they belong to the baseline.

    Raises:
        WorkloadError: the dataset is empty or of the wrong type, or the model is no module.
    """
    dataset = build_dataset(workload)
    samples = len(dataset) if hasattr(dataset, "__len__") else None
    if samples == 0:
        raise WorkloadError(f"{workload.path}: build_dataset returned an empty dataset.")
    size = 2 if samples is None else min(2, samples)
    loader = DataLoader(dataset, batch_size=size, collate_fn=workload.collate_fn)
    batch = next(iter(loader), None)
    if batch is None:
        kind = "IterableDataset" if isinstance(dataset, IterableDataset) else "dataset"
        raise WorkloadError(f"{workload.path}: build_dataset returned an empty {kind}.")
    model = build_model(workload)
    weights = list(model.parameters())
    dimensions = {one.dim() for one in tensors_in(batch)} & {one.dim() for one in weights}
    modules, folder = own_modules(workload.path), workload.path.resolve().parent
    has_equal = False
    with suppress(Exception):  # the baseline says what is wrong with it
        has_equal = has_equal_groups(workload.build_optimizer(model.parameters()))
    return WorkloadFacts(
        dataset_samples=samples,
        image_batches=bool(dimensions & set(IMAGE_DIMENSIONS)),
        optimizer_options=workload.optimizer_options,
        has_evaluate=workload.evaluate is not None,
        baseline={**own_settings, **workload.baseline},
        model_tensors=len(weights),
        sample_bytes=bytes_in(batch) // size,
        local_modules=modules,
        workers_obstacle=STREAM if isinstance(dataset, IterableDataset) else "",
        repeated_blocks=bool(repeated_blocks(model)),
        has_checkpoint=workload.checkpoint is not None,
        attention=mentions_attention(model, [workload.path, *(folder / name for name in modules)]),
        equal_groups=has_equal,
        fills_memory=fills_memory(),
        signatures=workload.signatures(),
    )


def _native_dtypes(device: str) -> tuple[str, ...]:
    if torch.device(device).type == "cuda":
        # By default emulated bfloat16 counts as supported.
        with torch.cuda.device(device):
            bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return ("bfloat16", "float16") if bfloat16 else ("float16",)
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = " ".join(line for line in lines if line.startswith(("flags", "Features")))
    has = set(flags.split())
    names = {
        "bfloat16": ("avx512_bf16", "amx_bf16", "bf16"),
        "float16": ("avx512_fp16", "amx_fp16"),
    }
    return tuple(n for n, instructions in names.items() if has & set(instructions))


def _matmul_precisions(device: str) -> tuple[str, ...]:
    """Return the precisions that differ; off CUDA a test product shows it."""
    if torch.device(device).type == "cuda":
        tf32 = torch.cuda.get_device_capability(device) >= _TF32_CAPABILITY
        return ("highest", "high") if tf32 else ("highest",)
    before = torch.get_float32_matmul_precision()
    generator = torch.Generator().manual_seed(0)
    # Explicit dtype and device: the user's file may have changed torch's defaults.
    matrix = torch.randn(
        _MATMUL_SIZE, _MATMUL_SIZE, generator=generator, dtype=torch.float32, device="cpu"
    ).to(device)
    different: dict[str, Tensor] = {}
    for precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)
        product = matrix @ matrix
        if not any(torch.equal(product, known) for known in different.values()):
            different[precision] = product
    torch.set_float32_matmul_precision(before)
    return tuple(different)


def _compile_obstacle(host: Host, device: str) -> str:
    """Return why nothing can be compiled for the device; "" if it can.

    Triton needs a C compiler when it is first used, to build its link to the driver and a launcher
    for each kernel. Without a compiler every compile mode would fail.
    """
    if torch.device(device).type == "cpu":
        if host.compiler is None:
            return "torch.compile needs a C++ compiler on CPU; none was found (install g++)"
        if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
            return "torch.compile needs Python's headers on CPU; Python.h was not found"
        return ""
    if not has_triton_package():
        return "torch.compile needs Triton on this device; it is not installed"
    if not has_triton():
        return "torch.compile needs Triton, which has no support for this device"
    if c_compiler() is None:
        asked = os.environ.get("CC")
        found = "none was found" if asked is None else f"CC={asked} was not found"
        return f"torch.compile needs a C compiler on CUDA, for Triton; {found} (install gcc)"
    # Where Triton looks, which ignores Debian's own scheme.
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    headers = Path(sysconfig.get_path("include", scheme))
    if not (headers / "Python.h").exists():
        return (
            "torch.compile needs Python's headers on CUDA, for Triton; Python.h was not found in "
            f"{headers} (install python3-dev)"
        )
    return ""
