"""DistributedDataParallel in a script, and the module that it wraps: settings are put on that one.

Torch compiles that module while DDP calls it, and cuts the graph where buckets of gradients are
exchanged, whether the script compiles the wrapped or the wrapping module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autotune.knobs.torch_private import compiled_call, is_compiled_wrapper


def is_eager(model: nn.Module) -> bool:
    """Return True unless the script has compiled the model itself."""
    return compiled_call(model) is None and not is_compiled_wrapper(model)


def within_ddp(model: nn.Module) -> nn.Module:
    """Return the module that DDP wraps; others, and a DDP that is compiled itself, as they are."""
    if isinstance(model, DistributedDataParallel) and is_eager(model):
        return model.module  # type: ignore[no-any-return]
    return model


def before_wrapping(change: Callable[[nn.Module], None]) -> None:
    """Call `change` with each module that DDP is about to wrap.

    DDP lays its buckets out for the parameters as it finds them. Side effect: patches its
    constructor for the process.
    """
    original = DistributedDataParallel.__init__

    @functools.wraps(original)
    def __init__(ddp: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        change(module)
        original(ddp, module, *args, **kwargs)

    DistributedDataParallel.__init__ = __init__  # type: ignore[method-assign, assignment]
