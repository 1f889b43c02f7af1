"""Describe the machine as torch sees it, and the workload. Runs once, in a child."""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from autotune.knobs import ALL_KNOBS
from autotune.knobs.attention import mentions_attention
from autotune.knobs.base import Value
from autotune.knobs.compile import repeated_blocks
from autotune.knobs.model import IMAGE_DIMENSIONS, fills_memory
from autotune.knobs.stepping import has_equal_groups
from autotune.knobs.torch_private import compile_modes, has_triton, has_triton_package, map_leaves
from autotune.process.common.imports import own_modules
from autotune.training.sharding import workers_obstacle
from autotune.training.training_setup import build_dataset, build_model
from autotune.training.workload import Workload
from autotune.values.errors import UsageError, WorkloadError
from autotune.values.machine import Host, Machine, c_compiler, nvidia_driver, probe_host
from autotune.values.outcome import WorkloadFacts

# Rows and columns; below this size CPU kernels ignore float32_matmul_precision.
_MATMUL_SIZE = 512
_TF32_CAPABILITY = (8, 0)


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


def accelerator_name() -> str:
    """Return the name of the GPU in use as best.yaml spells it; "cpu" if there is none."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


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


def process_settings() -> dict[str, Value]:
    """Return the present values of the process-wide knobs."""
    values = {knob.name: knob.read_process() for knob in ALL_KNOBS}
    return {name: value for name, value in values.items() if value is not None}


def describe_workload(workload: Workload, own_settings: Mapping[str, Value]) -> WorkloadFacts:
    """Build model, dataset and one small batch, and describe them; a stream is read with workers.

    `own_settings` are settings that the file changed in the process while it was imported. The user
    trains with them today, so they belong to the baseline.

    Raises:
        WorkloadError: the dataset is empty or of the wrong type, the model is no module,
            or count_tokens returns no number of tokens.
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
    if workload.count_tokens is not None:
        workload.tokens_in(batch)
    model = build_model(workload)
    weights = list(model.parameters())
    dimensions = {one.dim() for one in _tensors(batch)} & {one.dim() for one in weights}
    modules, folder = own_modules(workload.path), workload.path.resolve().parent
    return WorkloadFacts(
        dataset_samples=samples,
        image_batches=bool(dimensions & set(IMAGE_DIMENSIONS)),
        optimizer_options=workload.optimizer_options,
        has_evaluate=workload.evaluate is not None,
        baseline={**own_settings, **workload.baseline},
        model_tensors=len(weights),
        sample_bytes=tensor_bytes(batch) // size,
        local_modules=modules,
        counts_tokens=workload.count_tokens is not None,
        workers_obstacle=workers_obstacle(dataset) if isinstance(dataset, IterableDataset) else "",
        repeated_blocks=bool(repeated_blocks(model)),
        has_checkpoint=workload.checkpoint is not None,
        attention=mentions_attention(model, [workload.path, *(folder / name for name in modules)]),
        equal_groups=_has_equal_groups(workload, model),
        fills_memory=fills_memory(),
        signatures=workload.signatures(),
    )


def _has_equal_groups(workload: Workload, model: nn.Module) -> bool:
    with suppress(Exception):  # the baseline says what is wrong with it
        return has_equal_groups(workload.build_optimizer(model.parameters()))
    return False


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
    if torch.device(device).type == "cpu":
        if host.compiler is None:
            return "torch.compile needs a C++ compiler on CPU; none was found (install g++)"
        if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
            return "torch.compile needs Python's headers on CPU; Python.h was not found"
        return ""
    return _triton_obstacle()


def _triton_obstacle() -> str:
    """Return why Triton cannot compile for the GPU; "" if it can.

    It needs a C compiler when it is first used, to build its link to the driver and a launcher for
    each kernel. Without a compiler every compile mode would fail.
    """
    if not has_triton_package():
        return "torch.compile needs Triton on this device; it is not installed"
    if not has_triton():
        return "torch.compile needs Triton, which has no support for this device"
    if c_compiler() is None:
        asked = os.environ.get("CC")
        found = "none was found" if asked is None else f"CC={asked} was not found"
        return f"torch.compile needs a C compiler on CUDA, for Triton; {found} (install gcc)"
    if not (_triton_headers() / "Python.h").exists():
        return (
            "torch.compile needs Python's headers on CUDA, for Triton; Python.h was not found in "
            f"{_triton_headers()} (install python3-dev)"
        )
    return ""


def _triton_headers() -> Path:
    """Return the folder in which Triton looks for Python.h; it ignores Debian's own scheme."""
    scheme = sysconfig.get_default_scheme()
    return Path(sysconfig.get_path("include", scheme.replace("posix_local", "posix_prefix")))


def tensor_bytes(batch: Any) -> int:
    """Return the bytes of all tensors in a nested batch."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(batch))


def _tensors(batch: Any) -> list[Tensor]:
    """Return the tensors in a nested batch."""
    leaves: list[Any] = []
    map_leaves(leaves.append, batch)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]
