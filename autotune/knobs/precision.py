"""Knobs of arithmetic: autocast, the inner precision of matrix products, deterministic kernels."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import cast

from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.values.machine import Machine

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_REPEATABLE = (":4096:8", ":16:8")


class AmpDtype(Knob):
    """Automatic mixed precision."""

    name = "amp_dtype"
    default = None
    values = OneOf((None, "bfloat16", "float16"))
    effect = "numerics"
    summary = "Format of the forward pass under autocast; float16 brings a GradScaler with it."
    pays = "Matrix units: most convolutional and transformer models, up to several times."
    hurts = "Without native instructions it is emulated and slow; float16 can underflow."
    call = "torch.autocast(device_type, dtype=...), torch.amp.GradScaler"
    source = "https://docs.pytorch.org/docs/stable/amp.html"

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value is None or value in machine.native_dtypes:
            return None
        return f"{machine.device_name} has no native {value} instructions"

    def forward_context(self, value: Value, device: str) -> AbstractContextManager[None]:
        if value is None:
            return nullcontext()
        import torch

        autocast = torch.autocast(torch.device(device).type, dtype=getattr(torch, str(value)))
        return cast("AbstractContextManager[None]", autocast)

    def scales_loss(self, value: Value) -> bool:
        return value == "float16"

    def read_back(self, setup: Setup) -> Value:
        import torch

        with setup.forward_context():
            if not torch.is_autocast_enabled(setup.device.type):
                return None
            dtype = str(torch.get_autocast_dtype(setup.device.type)).removeprefix("torch.")
        return dtype if setup.scaler.is_enabled() == self.scales_loss(dtype) else None


class Float32MatmulPrecision(Knob):
    """Inner precision of float32 matrix products."""

    name = "float32_matmul_precision"
    default = "highest"
    values = OneOf(("highest", "high", "medium"))
    effect = "numerics"
    summary = "Inner precision of float32 matrix products: high is TF32, medium bfloat16."
    pays = "Float32 training on GPUs with TF32, and on CPUs with native bfloat16."
    hurts = "About two to three digits of a product; does nothing for what autocast already covers."
    call = "torch.set_float32_matmul_precision(...)"
    source = (
        "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html"
    )

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value in machine.matmul_precisions:
            return None
        return f"it changes nothing on {machine.device_name}"

    def on_process(self, value: Value) -> None:
        import torch

        # Only called if needed, because it must not be mixed with torch's per-backend settings.
        if value != self.read_process():
            torch.set_float32_matmul_precision(str(value))

    def read_process(self) -> Value:
        import torch

        try:
            return torch.get_float32_matmul_precision()
        except RuntimeError:  # the user's file uses the per-backend settings, which override it
            return self.default

    def read_back(self, setup: Setup) -> Value:
        return self.read_process()


class Deterministic(Knob):
    """torch's deterministic mode: a constraint, which `--deterministic` makes part of all settings.

    cuBLAS and torch read the variable when a process first uses CUDA, so that it can be set in the
    process itself.
    """

    name = "deterministic"
    default = False
    values = OneOf((False, True))
    effect = "numerics"
    summary = (
        "Run only kernels that give the same result each time; an operation without one raises. "
        "`--deterministic` holds it at true, and shipped spaces do not vary it."
    )
    pays = "Runs that can be repeated exactly on the same machine; it is never faster."
    hurts = "Deterministic kernels may be slower, and some operations have none."
    call = (
        "torch.use_deterministic_algorithms(True), and CUBLAS_WORKSPACE_CONFIG=:4096:8 in the "
        "environment before CUDA is used"
    )
    source = "https://docs.pytorch.org/docs/stable/notes/randomness.html"

    def nondeterminism(self, value: Value) -> str | None:
        return None if value else "the mode is off"

    def on_process(self, value: Value) -> None:
        import torch

        if value and os.environ.get(_WORKSPACE) not in _REPEATABLE:
            os.environ[_WORKSPACE] = _REPEATABLE[0]
        # Only called if needed: false leaves a mode that only warns as the user's file has it.
        if value != self.read_process():
            torch.use_deterministic_algorithms(bool(value))

    def read_process(self) -> Value:
        import torch

        only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
        return torch.are_deterministic_algorithms_enabled() and not only_warns

    def read_back(self, setup: Setup) -> Value:
        on_cuda = setup.device.type == "cuda"
        is_lost = on_cuda and os.environ.get(_WORKSPACE) not in _REPEATABLE
        return self.read_process() and not is_lost


PRECISION_KNOBS: tuple[Knob, ...] = (AmpDtype(), Float32MatmulPrecision(), Deterministic())
