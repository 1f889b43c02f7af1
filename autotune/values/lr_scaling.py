"""Rules that scale the learning rate with the batch size.

`linear` suits SGD; `sqrt` suits optimizers that divide by the gradient's size, such as Adam.
Neither holds for every batch size. The linear rule breaks down early in training, so its factor is
capped at 8.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

LrRule = Literal["none", "linear", "sqrt"]
LR_RULES: tuple[LrRule, ...] = get_args(LrRule)
_MOST_LINEAR = 8.0


def lr_factor(rule: LrRule, batch_size: int, baseline_batch_size: int) -> float:
    """Return the factor on every learning rate of the baseline."""
    ratio = batch_size / baseline_batch_size
    match rule:
        case "none":
            return 1.0
        case "linear":
            return min(ratio, _MOST_LINEAR)
        case "sqrt":
            return math.sqrt(ratio)
