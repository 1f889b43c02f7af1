"""What torch knows of this machine, and what the workload is: asked once, in a child."""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from autotune.errors import UsageError, WorkloadError
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Value
from autotune.machine import Host, Machine, nvidia_driver, probe_host
from autotune.training.apply import build_dataset, build_model
from autotune.training.workload import Workload
from autotune.workload_facts import WorkloadFacts

_IMAGE_DIMENSIONS = 4
# Below this size CPU kernels ignore float32_matmul_precision.
_MATMUL_SIZE = 512
_TF32_CAPABILITY = (8, 0)


def resolve_device(device: str) -> str:
    """The device that "auto" means here; others are checked.

    Raises:
        UsageError: the device is not there.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if device == "auto":
        return "cpu" if accelerator is None else f"{accelerator.type}:0"
    try:
        wanted = torch.device(device)
        torch.empty(1, device=wanted)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"--device {device}: {str(error).splitlines()[0]}") from error
    if wanted.type == "cpu":
        return "cpu"
    if accelerator is None or wanted.type != accelerator.type:
        raise UsageError(f"--device {device}: nothing can be trained there. Choose cpu or cuda:N.")
    return f"{wanted.type}:{wanted.index or 0}"


def accelerator_name() -> str:
    """The accelerator in use, as best.yaml names devices; "cpu" where there is none."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return "cpu"
    index = torch.accelerator.current_device_index()
    if accelerator.type == "cuda":
        return torch.cuda.get_device_properties(index).name
    return f"{accelerator.type}:{index}"


def device_uuid(device: str) -> str:
    """What tells one GPU from another in every process; empty for other devices."""
    if torch.device(device).type != "cuda":
        return ""
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))


def describe_machine(device: str) -> Machine:
    """The machine with everything that decides which knob values can work on it."""
    host = probe_host()
    cuda = torch.device(device).type == "cuda"
    on_cpu = torch.device(device).type == "cpu"
    properties = torch.cuda.get_device_properties(device) if cuda else None
    return Machine(
        host=host,
        device=device,
        device_name=properties.name if properties else host.cpu_name if on_cpu else device,
        device_memory_bytes=_device_memory(device),
        python=platform.python_version(),
        torch=torch.__version__,
        default_num_threads=torch.get_num_threads(),
        native_dtypes=_native_dtypes(device),
        matmul_precisions=_matmul_precisions(device),
        compile_modes=_compile_modes(),
        compile_obstacle=_compile_obstacle(host, device),
        cuda_graphs=cuda,
        driver=nvidia_driver() if cuda else "",
    )


def process_settings() -> dict[str, Value]:
    """The knobs of the process as they are in force now."""
    values = {knob.name: knob.read_process() for knob in ALL_KNOBS}
    return {name: value for name, value in values.items() if value is not None}


def describe_workload(workload: Workload, own_settings: Mapping[str, Value]) -> WorkloadFacts:
    """Build model, dataset and one small batch, and note what they are.

    `own_settings` is what the file set for the process while it was imported: the user trains with
    that today, so it belongs to the baseline.

    Raises:
        WorkloadError: the dataset is empty or of the wrong type, the model no module.
    """
    dataset = build_dataset(workload)
    iterable = isinstance(dataset, IterableDataset)
    samples = len(dataset) if hasattr(dataset, "__len__") else None
    if samples == 0:
        raise WorkloadError(f"{workload.path}: build_dataset returned an empty dataset.")
    size = 2 if samples is None else min(2, samples)
    loader = DataLoader(dataset, batch_size=size, collate_fn=workload.collate_fn)
    batch = next(iter(loader), None)
    if batch is None:
        kind = "IterableDataset" if iterable else "dataset"
        raise WorkloadError(f"{workload.path}: build_dataset returned an empty {kind}.")
    model = build_model(workload)
    weights = list(model.parameters())
    return WorkloadFacts(
        dataset_samples=samples,
        image_batches=_has_images(batch) and any(w.dim() == _IMAGE_DIMENSIONS for w in weights),
        optimizer_options=workload.optimizer_options,
        has_evaluate=workload.evaluate is not None,
        baseline={**own_settings, **workload.baseline},
        model_parameters=sum(w.numel() for w in weights),
        sample_bytes=tensor_bytes(batch) // size,
        local_modules=local_modules(workload.path),
    )


def local_modules(model: Path) -> dict[str, str]:
    """Modules that lie in the model's folder and are imported by now, each with its digest.

    Not those of an environment that lies there, too.
    """
    folder = model.resolve().parent
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] != "autotune"]
    files = {getattr(module, "__file__", None) for module in modules}
    # What is no file of its own (torch.classes) has a name without a folder.
    named = [Path(file) for file in files if isinstance(file, str)]
    paths = {path.resolve() for path in named if path.is_absolute()} - {model.resolve()}
    own = (path for path in paths if path.is_relative_to(folder) and path.suffix == ".py")
    below = {path.relative_to(folder): path for path in own if path.is_file()}
    return {
        str(name): hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in sorted(below.items())
        if not {"site-packages", "dist-packages"} & set(name.parts)
    }


def _device_memory(device: str) -> int | None:
    if torch.device(device).type == "cpu":
        return None
    if torch.device(device).type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(torch.accelerator.get_memory_info(torch.device(device))[1])


def _native_dtypes(device: str) -> tuple[str, ...]:
    kind = torch.device(device).type
    if kind == "cuda":
        # Emulated bfloat16 counts as supported unless one asks otherwise.
        with torch.cuda.device(device):
            bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return ("bfloat16", "float16") if bfloat16 else ("float16",)
    if kind == "cpu":
        has = _cpu_instructions()
        names = {
            "bfloat16": ("avx512_bf16", "amx_bf16", "bf16"),
            "float16": ("avx512_fp16", "amx_fp16"),
        }
        return tuple(n for n, instructions in names.items() if has & set(instructions))
    return ("bfloat16", "float16")


def _cpu_instructions() -> set[str]:
    if hasattr(torch.cpu, "get_capabilities"):
        return {name for name, value in torch.cpu.get_capabilities().items() if value is True}
    # Before torch 2.13: the kernel's words for the same instructions.
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return {
        word for line in lines if line.startswith(("flags", "Features")) for word in line.split()
    }


def _matmul_precisions(device: str) -> tuple[str, ...]:
    """Precisions whose products differ in at least one bit: asking beats a table of hardware."""
    if torch.device(device).type == "cuda":
        tf32 = torch.cuda.get_device_capability(device) >= _TF32_CAPABILITY
        return ("highest", "high") if tf32 else ("highest",)
    before = torch.get_float32_matmul_precision()
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, generator=generator).to(device)
    different: dict[str, Tensor] = {}
    for precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)
        product = matrix @ matrix
        if not any(torch.equal(product, known) for known in different.values()):
            different[precision] = product
    torch.set_float32_matmul_precision(before)
    return tuple(different)


def _compile_modes() -> tuple[str, ...]:
    import torch._inductor

    return tuple(torch._inductor.list_mode_options())


def _compile_obstacle(host: Host, device: str) -> str:
    if torch.device(device).type == "cpu":
        if host.compiler is None:
            return "torch.compile needs a C++ compiler on CPU; none was found (install g++)"
        if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
            return "torch.compile needs Python's headers on CPU; Python.h was not found"
        return ""
    from torch.utils._triton import has_triton

    return "" if has_triton() else "torch.compile needs Triton on this device; it is not installed"


def tensor_bytes(batch: Any) -> int:
    """Bytes of all tensors in a batch, however nested."""
    match batch:
        case Tensor():
            return batch.numel() * batch.element_size()
        case dict():
            return sum(map(tensor_bytes, batch.values()))
        case tuple() | list():
            return sum(map(tensor_bytes, batch))
        case _:
            return 0


def _has_images(batch: Any) -> bool:
    match batch:
        case Tensor():
            return batch.dim() == _IMAGE_DIMENSIONS
        case dict():
            return any(map(_has_images, batch.values()))
        case tuple() | list():
            return any(map(_has_images, batch))
        case _:
            return False
